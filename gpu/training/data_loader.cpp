#include "gpu/training/data_loader.hpp"

#include "gpu/layers/model.hpp"
#include "gpu/model/shared_dataset.hpp"

#include <filesystem>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

namespace {

/// Files that a model is read from are data of the job too: what is wrong with them, another attempt will not mend.
void load_model(const job_specification& job, const std::vector<std::filesystem::path>& folders) {
  try {
    if (job.model.kind == "exported") {
      require_within(job.model.path, folders);
      try_exported_model(job.model);
    }
    if (job.resume.steps == 0 && is_stored(job.model))
      try_stored_layers(job.model, folders);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw data_error(e.what());
  }
}

} // namespace

data_loader::data_loader(const executor_options& options, std::function<void()> killed) :
    options_(options), killed_(std::move(killed)) {}

data_loader::~data_loader() {
  close();
  if (thread_.joinable())
    thread_.join();
}

void data_loader::begin(load x) {
  const lock held(mutex_);
  wanted_ = true;
  if (is_loading_)
    return; // its answer is to come
  if (data_)
    return options_.report_to(loaded{x.job, data_->digest()});
  if (thread_.joinable())
    thread_.join(); // has ended: it takes no lock after is_loading_ went false
  is_loading_ = true;
  thread_ = std::thread([this, x = std::move(x)] { run(x); });
}

void data_loader::forget() {
  const lock held(mutex_);
  wanted_ = false;
  data_.reset();
}

void data_loader::close() {
  const lock held(mutex_);
  closed_ = true;
}

void data_loader::run(const load& x) {
  std::shared_ptr<const dataset> data;
  report answer;
  try {
    if (options_.on_fault_point)
      options_.on_fault_point({"load", {}, 0, 0});
    load_model(x.specification, options_.data);
    data = shared_dataset(x.specification, options_.data);
    answer = loaded{x.job, data->digest()};
  } catch (const killed&) {
    return killed_();
  } catch (const data_error& e) {
    answer = failed{{}, failure::data, 0, e.what(), {}};
  } catch (const std::exception& e) {
    answer = failed{{}, failure::computation, 0, std::string("cannot load the data: ") + e.what(), {}};
  }
  const lock held(mutex_);
  is_loading_ = false;
  if (closed_)
    return;
  if (wanted_)
    data_ = std::move(data);
  options_.report_to(std::move(answer));
}

} // namespace parcae
