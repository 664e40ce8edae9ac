#include "gpu/data/shared_dataset.hpp"

#include "protocols/base/locks.hpp"

#include <map>
#include <new>
#include <utility>

namespace parcae {

std::shared_ptr<const dataset> shared_dataset(const job_specification& job,
                                              const std::vector<std::filesystem::path>& folders) {
  static parcae::mutex mutex;
  static std::map<std::pair<data_specification, model_specification>, std::weak_ptr<const dataset>> loaded GUARDED_BY(
      mutex);
  const std::pair key(job.data, job.model);
  const lock held(mutex);
  auto data = loaded[key].lock();
  if (data && !data->spoiled())
    return data;
  try {
    loaded[key] = data = load_dataset(job.data, job.model, folders);
  } catch (const data_error&) {
    throw;
  } catch (const std::bad_alloc&) { // says nothing of the data
    throw;
  } catch (const std::exception& e) {
    throw data_error(e.what());
  }
  return data;
}

} // namespace parcae
