#include "runtime/node/place_look.hpp"

#include "protocols/base/input_file.hpp"
#include "protocols/store/store.hpp"
#include "protocols/store/url_rules.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"

#include <chrono>
#include <system_error>

namespace parcae {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Somebody waits at a terminal.
constexpr store_pace brief{.attempts = 2, .connect = 2'000ms, .idle = 3'000ms, .whole = 3'000ms};

void require_there(const fs::path& path) {
  std::error_code why;
  const auto what = fs::status(path, why);
  if (what.type() == fs::file_type::not_found)
    throw input_error(path,
                      path.is_absolute() ? "is not there" : "is not there, seen from " + fs::current_path().string());
  if (why)
    throw input_error(path, "cannot be looked at: " + why.message());
  // Throws if it may not be listed, or read.
  const bool has_something =
      fs::is_directory(what) ? fs::directory_iterator(path) != fs::directory_iterator() : input_file(path).size() > 0;
  if (!has_something)
    throw input_error(path, "has nothing in it");
}

void look_to_read(const std::string& place, const std::vector<fs::path>& allowed, place_answer& to) {
  try {
    if (!is_url(place)) {
      require_within(place, allowed);
      return require_there(place);
    }
    require_allowed(place, allowed);
    if (!place.starts_with("s3://"))
      return to.unknown.push_back(place + " is not asked for before the job begins");
    const auto found = open_store(place, {.pace = brief, .places = allowed})->list();
    if (found.objects.empty() && found.folders.empty())
      to.unknown.push_back(place +
                           " has nothing below it: an object of that name is not looked for before the job begins");
  } catch (const std::exception& e) {
    to.problems.emplace_back(e.what());
  }
}

void look_to_write(const place_question& x, const std::vector<fs::path>& allowed, place_answer& to) {
  try {
    if (is_url(x.write))
      require_allowed(x.write, allowed);
    else
      require_within(x.write, allowed);
    open_store(x.write, {.endpoint = x.endpoint, .region = x.region, .pace = brief, .places = allowed})->list();
    to.unknown.push_back("whether " + x.write + " may be written to is found out with the first checkpoint");
  } catch (const std::exception& e) {
    to.problems.emplace_back(e.what());
  }
}

void look_at_tokenizer(const std::string& file, place_answer& to) {
  try {
    read_tokenizer(file);
  } catch (const std::exception& e) {
    to.problems.emplace_back(e.what());
  }
}

} // namespace

place_answer look_at_places(const place_question& x, role as, const std::vector<fs::path>& allowed) {
  place_answer result;
  if (as == role::worker)
    for (const auto& place : x.read)
      look_to_read(place, allowed, result);
  else if (as == role::gateway)
    for (const auto& file : x.read)
      look_at_tokenizer(file, result);
  else if (!x.write.empty())
    look_to_write(x, allowed, result);
  return result;
}

} // namespace parcae
