#include "protocols/base/digest.hpp"
#include "protocols/wire/type_ids.hpp"
#include "tests/support/field_count.hpp"
#include "tests/support/files.hpp"

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace parcae {
namespace {

using block = caf::id_block::parcae_protocol;

struct config : caf::actor_system_config {
  config() {
    parcae::add_message_types(*this);
    set("scheduler.policy", caf::atom("testing"));
  }
};

struct messages : testing::Test {
  config cfg;
  caf::actor_system system{cfg};

  template <class T>
  std::vector<char> bytes_of(const T& x) {
    std::vector<char> result;
    caf::binary_serializer sink(system, result);
    EXPECT_FALSE(sink(const_cast<T&>(x)));
    return result;
  }

  template <class T>
  T round_trip(const T& x) {
    auto bytes = bytes_of(x);
    T result{};
    caf::binary_deserializer source(system, bytes);
    EXPECT_FALSE(source(result));
    EXPECT_EQ(bytes_of(result), bytes);
    return result;
  }
};

template <class F, caf::type_id_t... Ids>
void for_each_type(F f, std::integer_sequence<caf::type_id_t, Ids...>) {
  (f.template operator()<static_cast<caf::type_id_t>(block::begin + Ids)>(), ...);
}

using all_types = std::make_integer_sequence<caf::type_id_t, block::end - block::begin>;

// given: a default object of each registered type / expected: the same bytes after a round trip
TEST_F(messages, default_objects_round_trip) {
  for_each_type(
      [&]<caf::type_id_t Id>() {
        SCOPED_TRACE(caf::type_name_by_id<Id>::value);
        round_trip(typename caf::type_by_id<Id>::type{});
      },
      all_types{});
}

template <class T>
constexpr bool is_vector = false;
template <class T>
constexpr bool is_vector<std::vector<T>> = true;

template <class T>
constexpr bool is_array = false;

template <class T, std::size_t Size>
constexpr bool is_array<std::array<T, Size>> = true;

/// Goes through all that `inspect` names of a message, down to numbers and texts. Fails where a field is left out.
template <class Leaf>
class walker {
public:
  using result_type = bool;
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = true;

  walker(std::size_t elements, Leaf leaf) : elements_(elements), leaf_(leaf) {}

  template <class T>
  void visit(T& x) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
      leaf_(x);
    } else if constexpr (is_vector<T>) {
      if (elements_ > 0)
        x.resize(elements_);
      for (auto& element : x)
        visit(element);
    } else if constexpr (is_array<T>) {
      for (auto& element : x)
        visit(element);
    } else {
      if constexpr (std::is_aggregate_v<T>) // else it is exact()
        expected_ = field_count<T>();
      inspect(*this, x);
    }
  }

  template <class... Fields>
  bool operator()(Fields&&... x) {
    if (const auto expected = std::exchange(expected_, 0); expected > 0) {
      EXPECT_EQ(sizeof...(x), expected) << "fields that inspect names, and that there are";
    }
    (visit(x), ...);
    return true;
  }

private:
  const std::size_t elements_; ///< to make of each list; 0: as it is
  std::size_t expected_ = 0;
  Leaf leaf_;
};

/// Gives each number and text another value, none of which is a default; each list has two elements.
template <class T>
T filled() {
  std::uint64_t last = 1000;
  T result{};
  walker fill(2, [&]<class Field>(Field& x) {
    if constexpr (std::is_same_v<Field, bool>)
      x = true;
    else if constexpr (std::is_enum_v<Field>)
      x = static_cast<Field>(2);
    else if constexpr (std::is_same_v<Field, std::string>)
      x = "text " + std::to_string(++last);
    else
      x = static_cast<Field>(++last);
  });
  fill.visit(result);
  return result;
}

template <class T>
std::vector<std::string> leaves_of(T x) {
  std::vector<std::string> result;
  walker collect(0, [&]<class Field>(Field& y) {
    if constexpr (std::is_same_v<Field, std::string>)
      result.push_back(y);
    else
      result.push_back(std::to_string(static_cast<std::uint64_t>(y)));
  });
  collect.visit(x);
  return result;
}

// given: each registered type but handles, with a value of its own in every field / expected: `inspect` names as many
// fields as there are, down to the innermost; the same values after a round trip
TEST_F(messages, every_field_of_every_message_travels) {
  for_each_type(
      [&]<caf::type_id_t Id>() {
        using type = typename caf::type_by_id<Id>::type;
        SCOPED_TRACE(caf::type_name_by_id<Id>::value);
        if constexpr (std::is_aggregate_v<type> || is_vector<type>)
          if constexpr (!std::is_same_v<type, std::vector<slot_actor>>) {
            const auto x = filled<type>();
            EXPECT_EQ(leaves_of(round_trip(x)), leaves_of(x));
          }
      },
      all_types{});
}

// given: the registered names, which the wire carries, and a digest of the bytes of each message with a value of its
// own in every field / expected: those of this version of the protocol, which are checked in
TEST_F(messages, are_those_of_this_version) {
  auto found = "protocol " + std::to_string(protocol_version) + "\n";
  for_each_type(
      [&]<caf::type_id_t Id>() {
        using type = typename caf::type_by_id<Id>::type;
        found += caf::type_name_by_id<Id>::value;
        if constexpr (std::is_aggregate_v<type> || is_vector<type>)
          if constexpr (!std::is_same_v<type, std::vector<slot_actor>>) {
            const auto bytes = bytes_of(filled<type>());
            found += " " + sha256_of(std::string_view(bytes.data(), bytes.size())).substr(0, 16);
          }
        found += "\n";
      },
      all_types{});
  EXPECT_EQ(found, content(MESSAGE_TYPES))
      << "what nodes say has changed: raise protocol_version, then put this into " << MESSAGE_TYPES;
}

// given: every element of every message between nodes / expected: it is registered, else the message would arrive empty
TEST_F(messages, all_elements_are_registered) {
  auto check_element = [&]<class T>(std::type_identity<T>) {
    // Integers and strings are CAF's own, atoms carry no data, local messages never leave their process.
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, std::string> && !caf::is_atom_constant<T>::value &&
                  !caf::allowed_unsafe_message_type<T>::value) {
      EXPECT_EQ(cfg.type_names_by_rtti.count(std::type_index(typeid(T))), 1u) << typeid(T).name();
    }
  };
  auto check_message =
      [&]<class... Ins, class... Outs>(
          std::type_identity<caf::typed_mpi<caf::detail::type_list<Ins...>, caf::output_tuple<Outs...>>>) {
        (check_element(std::type_identity<Ins>{}), ...);
        if constexpr (!(std::is_void_v<Outs> || ...))
          (check_element(std::type_identity<Outs>{}), ...);
      };
  auto check_interface = [&]<class... Signatures>(std::type_identity<caf::typed_actor<Signatures...>>) {
    (check_message(std::type_identity<Signatures>{}), ...);
  };
  check_interface(std::type_identity<manager_actor>{});
  check_interface(std::type_identity<instance_actor>{});
  check_interface(std::type_identity<slot_actor>{});
  check_interface(std::type_identity<report_sink>{});
}

placement sample_placement() {
  return {2, 1, {0, 3}, {{{"a", {7}, 0}, "127.0.0.1", 1000}, {{"b", {8}, 1}, "127.0.0.1", 1001}}};
}

// given: a diverged step's figures, numbers that arithmetic would change, a zero among bytes / expected: the same bits
TEST_F(messages, numbers_keep_their_bits) {
  const double infinite = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
  const auto result = round_trip(commit_result{7, none, infinite, 0, 5e-324, false, false});
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_EQ(result.gradient_norm, infinite);
  EXPECT_EQ(result.learning_rate, 5e-324);
  const auto sums = round_trip(evaluated{{1}, {2, {1}}, 0, {none, -infinite, -0.0, 0.1}}).sums;
  ASSERT_EQ(sums.size(), 4u);
  EXPECT_TRUE(std::isnan(sums[0]));
  EXPECT_EQ(sums[1], -infinite);
  EXPECT_TRUE(std::signbit(sums[2]));
  EXPECT_EQ(sums[3], 0.1);
  EXPECT_EQ(round_trip(pass_times{infinite, 1, 2}).forward_ms, infinite);
  EXPECT_EQ(round_trip(client_request{{'a', '\0', 'b'}}).bytes, (std::vector<char>{'a', '\0', 'b'}));
}

// given: the bytes of a PREPARE, cut short anywhere / expected: an error, never a crash
TEST_F(messages, truncated_bytes_are_errors) {
  prepare p;
  p.target = sample_placement();
  auto bytes = bytes_of(p);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    prepare q;
    caf::binary_deserializer source(system, part);
    EXPECT_TRUE(source(q)) << n;
  }
}

} // namespace
} // namespace parcae
