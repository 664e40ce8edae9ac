#include "runtime/job/keys_json.hpp"

#include "protocols/values/job_keys.hpp"

#include <boost/json.hpp>

namespace parcae {

std::string job_keys_json() {
  namespace json = boost::json;
  const auto text = [](std::string_view x) { return json::value(json::string_view(x.data(), x.size())); };
  const auto on_resume_text = [](on_resume x) {
    switch (x) {
    case on_resume::free:
      return "free";
    case on_resume::fixed:
      return "fixed";
    case on_resume::shape:
      return "shape";
    }
    return "";
  };
  json::array all;
  for (const auto& x : job_keys())
    all.push_back(json::object{{"section", text(x.section)},
                               {"name", text(x.name)},
                               {"type", text(type_of(x))},
                               {"default", text(x.usual.empty() ? value_of(x, {}) : std::string(x.usual))},
                               {"range", text(range_of(x))},
                               {"kinds", text(x.kinds)},
                               {"job_kind", text(job_kind_of(x))},
                               {"on_resume", on_resume_text(x.resume)},
                               {"meaning", text(x.meaning)}});
  return json::serialize(json::object{{"keys", std::move(all)}});
}

} // namespace parcae
