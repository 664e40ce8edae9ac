#pragma once

// What the sources of exported models share; for them only.

#include "protocols/model/exported_model.hpp"

#include <boost/json/value.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

[[noreturn]] inline void fail(const std::string& where, const std::string& why) {
  throw exported_model_error(where + ": " + why);
}

/// What a graph may refer to.
struct graph_frame {
  std::size_t extras = 0; ///< inputs of the sample besides the first
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  std::size_t constants = 0;
  bool targets = false;
  bool training = true;
  bool rows = false; ///< a sample is a position of a served request; else there are no positions
};

/// Whether every node can be run: arguments as their schemas say, nothing but the graph's own values written in place,
/// no random numbers but ours. Empty, or what is wrong and where.
std::string problem_of(const exported_graph& x, const graph_frame& with);

/// Reads a graph. Throws exported_model_error, with `where` in front.
exported_graph graph_of(const boost::json::value& x, const std::string& where);

/// Text of a file as it may stand in a one-line error: bounded, without control characters.
std::string shown(std::string_view text);

// JSON, by type; what is missing or of another type is an exported_model_error that names it, with `where` in front.
const boost::json::value& member(const boost::json::value& of, std::string_view key, const std::string& where);
const boost::json::object& object_in(const boost::json::value& of, std::string_view key, const std::string& where);
const boost::json::array& array_in(const boost::json::value& of, std::string_view key, const std::string& where);
std::string text_in(const boost::json::value& of, std::string_view key, const std::string& where);
std::int64_t whole_in(const boost::json::value& of, std::string_view key, const std::string& where);
double quantity_in(const boost::json::value& of, std::string_view key, const std::string& where);
std::string checked_name(const boost::json::value& x, const std::string& where); ///< a tensor's is a key in other files
std::vector<std::int64_t> shape_of(const boost::json::value& x, const std::string& where);

} // namespace parcae
