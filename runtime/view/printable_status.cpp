#include "runtime/view/printable_status.hpp"

#include "protocols/base/described.hpp"
#include "protocols/base/printable.hpp"

#include <cstddef>

namespace parcae {

namespace {

constexpr std::size_t max_text_bytes = 2000;

template <class T>
void make_printable(T&) {} // a number

void make_printable(std::string& x) {
  x = printable(x, max_text_bytes);
}

template <class T>
void make_printable(std::vector<T>& all);

template <described T>
void make_printable(T& x) {
  for_each_field(x, [](const char*, auto& field) { make_printable(field); });
}

template <class T>
void make_printable(std::vector<T>& all) {
  for (auto& x : all)
    make_printable(x);
}

} // namespace

status_reply printable(status_reply x) {
  make_printable(x);
  return x;
}

} // namespace parcae
