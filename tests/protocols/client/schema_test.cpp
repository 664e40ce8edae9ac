// The structs of client and manifest against their schemas, field by field.

#include "protocols/client/client.capnp.h"
#include "protocols/client/client.hpp"
#include "protocols/client/manifest.capnp.h"
#include "protocols/client/manifest.hpp"
#include "protocols/client/stored_values.hpp"
#include "tests/support/field_count.hpp"

#include <boost/describe/bases.hpp>

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <type_traits>

namespace parcae {
namespace {

using type = capnp::schema::Type;

template <described T>
void compare(capnp::StructSchema schema);

template <class T>
void compare_type(std::type_identity<T>, capnp::Type there) {
  constexpr auto expected = std::is_same_v<T, bool>            ? type::BOOL
                            : std::is_same_v<T, double>        ? type::FLOAT64
                            : std::is_same_v<T, step_part>     ? type::UINT8
                            : std::is_same_v<T, std::uint16_t> ? type::UINT16
                            : std::is_same_v<T, std::uint32_t> ? type::UINT32
                            : std::is_same_v<T, std::uint64_t> ? type::UINT64
                            : std::is_same_v<T, std::int32_t>  ? type::INT32
                            : std::is_same_v<T, std::int64_t>  ? type::INT64
                            : std::is_same_v<T, std::string>   ? type::TEXT
                                                               : type::VOID;
  static_assert(expected != type::VOID, "has no type in the schema");
  EXPECT_EQ(there.which(), expected);
}

template <class Tag>
void compare_type(std::type_identity<strong_number<Tag>>, capnp::Type there) {
  EXPECT_EQ(there.which(), type::UINT64);
}

template <described T>
void compare_type(std::type_identity<T>, capnp::Type there) {
  ASSERT_EQ(there.which(), type::STRUCT);
  compare<T>(there.asStruct());
}

template <class T>
void compare_type(std::type_identity<std::vector<T>>, capnp::Type there) {
  ASSERT_EQ(there.which(), type::LIST);
  compare_type(std::type_identity<T>{}, there.asList().getElementType());
}

template <class Key, class T>
void compare_type(std::type_identity<std::map<Key, T>>, capnp::Type there) {
  ASSERT_EQ(there.which(), type::LIST);
  const auto fields = there.asList().getStructElementType().getFields();
  ASSERT_EQ(fields.size(), 2u);
  compare_type(std::type_identity<Key>{}, fields[0].getType());
  compare_type(std::type_identity<T>{}, fields[1].getType());
}

template <described T>
void compare(capnp::StructSchema schema) {
  SCOPED_TRACE(schema.getShortDisplayName().cStr());
  // The manager's life is said beside the status, to commands that submit too; and so is that there is more.
  constexpr std::size_t beside = std::is_same_v<T, status_reply> ? 2 : 0;
  using own = boost::describe::describe_members<T, boost::describe::mod_public>;
  using bases = boost::describe::describe_bases<T, boost::describe::mod_public>;
  EXPECT_EQ(boost::mp11::mp_size<own>::value + boost::mp11::mp_size<bases>::value + beside, field_count<T>())
      << "fields described, and those that there are";
  std::set<std::string> names;
  T x;
  for_each_field(x, [&]<class Field>(const char* name, Field&) {
    SCOPED_TRACE(name);
    names.insert(name_in_schema(name));
    KJ_IF_MAYBE (there, schema.findFieldByName(name_in_schema(name).c_str()))
      compare_type(std::type_identity<Field>{}, there->getType());
    else
      ADD_FAILURE() << "is not in the schema";
  });
  for (auto there : schema.getFields())
    EXPECT_TRUE(names.contains(there.getProto().getName().cStr()))
        << there.getProto().getName().cStr() << " is not described";
}

// given: every struct that is stored whole / expected: each of its fields is in the schema under its name and type,
// down to the innermost, and each of the schema is in the struct
TEST(schema, has_the_fields_of_the_structs) {
  compare<submit_request>(capnp::Schema::from<schema::Submission>());
  compare<check_request>(capnp::Schema::from<schema::Submission>());
  compare<status_request>(capnp::Schema::from<schema::StatusRequest>());
  compare<preempt_request>(capnp::Schema::from<schema::PreemptRequest>());
  compare<report_request>(capnp::Schema::from<schema::FailureReport>());
  compare<error_reply>(capnp::Schema::from<schema::Error>());
  compare<status_reply>(capnp::Schema::from<schema::Status>());
  compare<checked_reply>(capnp::Schema::from<schema::Checked>());
  compare<trace_request>(capnp::Schema::from<schema::TraceRequest>());
  compare<trace_reply>(capnp::Schema::from<schema::Trace>());
  compare<stored_layer>(capnp::Schema::from<schema::StoredLayer>());
}

// given: names of fields / expected: as Cap'n Proto wants them
TEST(schema, names_are_in_camel_case) {
  EXPECT_EQ(name_in_schema("at_us"), "atUs");
  EXPECT_EQ(name_in_schema("parameters_sha256"), "parametersSha256");
  EXPECT_EQ(name_in_schema("low_samples_per_s"), "lowSamplesPerS");
  EXPECT_EQ(name_in_schema("loss"), "loss");
}

} // namespace
} // namespace parcae
