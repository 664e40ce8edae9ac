#include "runtime/web/page.hpp"

#include "runtime/web/page_files.hpp" // made by page/embed.cmake

#include <algorithm>

namespace parcae {

namespace {

const char* type_of(std::string_view name) {
  if (name.ends_with(".html"))
    return "text/html; charset=utf-8";
  if (name.ends_with(".css"))
    return "text/css; charset=utf-8";
  return name.ends_with(".svg") ? "image/svg+xml" : "text/javascript; charset=utf-8";
}

} // namespace

std::optional<web_answer> page_file(const web_target& target) {
  if (target.path.size() > 1)
    return {};
  const auto name = target.path.empty() ? "index.html" : target.path.front();
  const auto i = std::ranges::find(page_files, name, &page_file_text::name);
  if (i == std::end(page_files))
    return {};
  web_answer result;
  result.type = type_of(i->name);
  result.body = std::make_shared<const std::string>(i->text);
  return result;
}

} // namespace parcae
