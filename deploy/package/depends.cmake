# What the .deb depends on: Debian's packages with the libraries that the programs need. CPack's own way
# (CPACK_DEBIAN_PACKAGE_SHLIBDEPS) has LibTorch's libraries read, too, relocation by relocation, and twice, for ten
# seconds. They need no library that the programs do not, which is looked after here, and older versions of these.
set(folder ${CPACK_TOPLEVEL_DIRECTORY}/depends)
set(installed ${CPACK_TEMPORARY_DIRECTORY}/usr/lib/parcae)

function(needed_by result)
  execute_process(COMMAND ${CPACK_READELF_EXECUTABLE} --dynamic ${ARGN} OUTPUT_VARIABLE said
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "Shared library: .[^\n]*" said "${said}")
  list(TRANSFORM said REPLACE "Shared library: .(.*)." "\\1")
  set(${result} ${said} PARENT_SCOPE)
endfunction()

file(GLOB libraries ${installed}/lib/*)
needed_by(by_programs ${installed}/bin/parcae ${installed}/bin/parcae-node)
needed_by(by_libraries ${libraries})
list(REMOVE_ITEM by_libraries ${by_programs})
list(FILTER by_libraries EXCLUDE REGEX "^(ld-linux|lib(dl|pthread|rt|util)\\.so)") # parts of the C library
foreach(x ${libraries})
  get_filename_component(name ${x} NAME)
  list(REMOVE_ITEM by_libraries ${name})
endforeach()
if(by_libraries)
  message(FATAL_ERROR "LibTorch needs libraries that the programs do not: ${by_libraries}")
endif()

# Apart, where they do not find LibTorch, whose libraries are in no package: it warns of that.
file(COPY ${installed}/bin/ DESTINATION ${folder}/bin)
file(WRITE ${folder}/debian/control "")
execute_process(COMMAND dpkg-shlibdeps -O bin/parcae bin/parcae-node WORKING_DIRECTORY ${folder}
  OUTPUT_VARIABLE said ERROR_VARIABLE problem RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT said MATCHES "Depends=([^\n]+)")
  message(FATAL_ERROR "dpkg-shlibdeps: ${said} ${problem}")
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS ${CMAKE_MATCH_1})
