# cmake -DOUTPUT=FILE "-DFILES=A;B" -P embed.cmake: a header with these files' texts.
set(text "// Made from runtime/web/page.\n#include <string_view>\n\nnamespace parcae {\n
struct page_file_text {\n  std::string_view name, text;\n};\n\ninline constexpr page_file_text page_files[] = {\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} content)
  string(APPEND text "{\"${name}\", R\"embedded(${content})embedded\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${text}};\n\n} // namespace parcae\n")
