#pragma once

// Described structs in Cap'n Proto, field by field: some_field is someField of the schema, a struct is a struct or a
// group, a map a list of structs of two fields. For the sources of this folder only.

#include "protocols/base/described.hpp"
#include "protocols/values/ids.hpp"

#include <capnp/dynamic.h>
#include <capnp/serialize.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace parcae {

/// "at_us" is "atUs".
inline std::string name_in_schema(std::string_view field) {
  std::string result;
  for (auto c : field)
    if (!result.empty() && result.back() == '_')
      result.back() = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    else
      result += c;
  return result;
}

/// The schema's fields in the order of the struct's; looked up once, as each struct belongs to one schema.
template <described T>
const std::vector<capnp::StructSchema::Field>& fields_in(capnp::StructSchema schema) {
  static const auto fields = [&] {
    std::vector<capnp::StructSchema::Field> result;
    boost::mp11::mp_for_each<fields_of<T>>(
        [&](auto field) { result.push_back(schema.getFieldByName(name_in_schema(field.name).c_str())); });
    return result;
  }();
  return fields;
}

template <described T>
void put(capnp::DynamicStruct::Builder to, const T& x);
template <described T>
void get(capnp::DynamicStruct::Reader from, T& x);

template <class T>
capnp::DynamicValue::Reader stored(const T& x) {
  return x;
}

template <class T>
requires std::is_enum_v<T> capnp::DynamicValue::Reader stored(const T& x) {
  return static_cast<std::underlying_type_t<T>>(x);
}

inline capnp::DynamicValue::Reader stored(const std::string& x) {
  return capnp::Text::Reader(x.c_str(), x.size());
}

template <class Tag>
capnp::DynamicValue::Reader stored(const strong_number<Tag>& x) {
  return x.value;
}

/// `to` and `where`: a struct and its field, or a list and its index.
template <class To, class Where, class T>
void put_value(To to, Where where, const T& x) {
  to.set(where, stored(x));
}

template <described T>
void put_value(capnp::DynamicStruct::Builder to, capnp::StructSchema::Field where, const T& x) {
  put(to.init(where).as<capnp::DynamicStruct>(), x);
}

template <described T>
void put_value(capnp::DynamicList::Builder to, unsigned where, const T& x) {
  put(to[where].as<capnp::DynamicStruct>(), x);
}

template <class T>
void put_all(capnp::DynamicList::Builder to, const std::vector<T>& all) {
  unsigned i = 0;
  for (const auto& x : all)
    put_value(to, i++, x);
}

template <class T>
void put_value(capnp::DynamicStruct::Builder to, capnp::StructSchema::Field where, const std::vector<T>& all) {
  put_all(to.init(where, static_cast<unsigned>(all.size())).as<capnp::DynamicList>(), all);
}

template <class Key, class T>
void put_value(capnp::DynamicStruct::Builder to, capnp::StructSchema::Field where, const std::map<Key, T>& all) {
  auto list = to.init(where, static_cast<unsigned>(all.size())).as<capnp::DynamicList>();
  unsigned i = 0;
  for (const auto& [key, x] : all) {
    auto entry = list[i++].as<capnp::DynamicStruct>();
    put_value(entry, entry.getSchema().getFields()[0], key);
    put_value(entry, entry.getSchema().getFields()[1], x);
  }
}

template <class T>
void get_value(const capnp::DynamicValue::Reader& from, T& x) {
  x = from.as<T>();
}

/// May be none of the enumerators.
template <class T>
requires std::is_enum_v<T>
void get_value(const capnp::DynamicValue::Reader& from, T& x) {
  x = static_cast<T>(from.as<std::underlying_type_t<T>>());
}

inline void get_value(const capnp::DynamicValue::Reader& from, std::string& x) {
  x = from.as<capnp::Text>().cStr();
}

template <class Tag>
void get_value(const capnp::DynamicValue::Reader& from, strong_number<Tag>& x) {
  x.value = from.as<std::uint64_t>();
}

template <described T>
void get_value(const capnp::DynamicValue::Reader& from, T& x) {
  get(from.as<capnp::DynamicStruct>(), x);
}

template <class T>
void get_value(const capnp::DynamicValue::Reader& from, std::vector<T>& all) {
  const auto list = from.as<capnp::DynamicList>();
  all.reserve(list.size());
  for (auto x : list)
    get_value(x, all.emplace_back());
}

template <class Key, class T>
void get_value(const capnp::DynamicValue::Reader& from, std::map<Key, T>& all) {
  for (auto x : from.as<capnp::DynamicList>()) {
    const auto entry = x.as<capnp::DynamicStruct>();
    Key key{};
    get_value(entry.get(entry.getSchema().getFields()[0]), key);
    get_value(entry.get(entry.getSchema().getFields()[1]), all[key]);
  }
}

template <described T>
void put(capnp::DynamicStruct::Builder to, const T& x) {
  auto where = fields_in<T>(to.getSchema()).begin();
  for_each_field(x, [&](const char*, const auto& field) { put_value(to, *where++, field); });
}

template <described T>
void get(capnp::DynamicStruct::Reader from, T& x) {
  auto where = fields_in<T>(from.getSchema()).begin();
  for_each_field(x, [&](const char*, auto& field) { get_value(from.get(*where++), field); });
}

template <described T>
T get(capnp::DynamicStruct::Reader from) {
  T x;
  get(from, x);
  return x;
}

inline std::vector<char> bytes_of(capnp::MessageBuilder& message) {
  auto words = capnp::messageToFlatArray(message);
  auto chars = words.asChars();
  return {chars.begin(), chars.end()};
}

/// Reads a message of a schema type and turns every way of being malformed into a std::runtime_error.
template <class Root, class Function>
auto decoded(std::span<const char> bytes, std::size_t limit, const char* what, Function&& function) {
  if (bytes.size() > limit)
    throw std::runtime_error(std::string(what) + " of " + std::to_string(bytes.size()) + " bytes is larger than " +
                             std::to_string(limit));
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0)
    throw std::runtime_error(std::string(what) + " is not a whole number of words");
  try {
    // A copy, because the bytes of an actor message need not be aligned.
    auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    // Each word may be visited once, plus slack for defaults: pointers that share a target cannot blow a message up.
    capnp::ReaderOptions options{.traversalLimitInWords = words.size() + 1024, .nestingLimit = 16};
    capnp::FlatArrayMessageReader reader(words, options);
    return function(reader.getRoot<Root>());
  } catch (const kj::Exception& e) {
    throw std::runtime_error(std::string(what) + " is malformed: " + e.getDescription().cStr());
  }
}

} // namespace parcae
