#include "gpu/training/data_loader.hpp"

#include "gpu/data/shared_dataset.hpp"
#include "gpu/layers/model.hpp"
#include "gpu/layers/tensor_device.hpp"
#include "gpu/training/usual_bits.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/store/fetch.hpp"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

namespace {

/// Copies what the job names by URL, unless that is what is here. Later looks take what is here.
void fetch_all(const job_specification& job, const std::vector<std::filesystem::path>& folders,
               const std::stop_token& stop) {
  std::vector<std::string> places;
  if (!job.serves())
    places.push_back(job.data.path);
  for (const auto& x : job.data.source)
    places.push_back(x.path);
  for (const auto& x : places)
    if (is_url(x))
      try {
        fetch(x, {.store = {.stop = stop, .places = folders}});
      } catch (const store_error& e) {
        throw data_error(std::string("data ") + e.what());
      }
  if (job.resume.steps == 0)
    try {
      fetch_stored_layers(job.model, folders, stop);
    } catch (const std::runtime_error& e) {
      throw data_error(e.what());
    }
}

/// Told like files that cannot be read: another attempt will not mend it.
void require_precision(const job_specification& job, const device* on) {
  if (job.in_bfloat16() && on && !on->facts().has_bfloat16)
    throw data_error("precision \"bfloat16\" needs a GPU that multiplies in it, from sm_80 on; this is " +
                     on->facts().computes_as);
}

tensor_device device_of(const executor_options& options) {
  return options.on ? tensor_device(*options.on) : processor();
}

/// Files that a model is read from are data of the job too: what is wrong with them, another attempt will not mend.
void load_model(const job_specification& job, const executor_options& options) {
  try {
    if (job.model.kind == "exported")
      require_within(job.model.path, options.data);
    if (job.model.is_own()) {
      // As training will: the first backward pass of a process starts autograd's threads, which keep what is said now.
      at::set_num_threads(static_cast<int>(job.threads > 0 ? job.threads : options.cores));
      try_own_model(job.model, device_of(options));
    }
    if (job.resume.steps == 0 && is_stored(job.model))
      try_stored_layers(job.model, options.data);
  } catch (const c10::OutOfMemoryError& e) {
    device_of(options).note_end(e);
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw data_error(e.what());
  }
}

loaded loaded_with(const job_id& job, const row_proof& proof) {
  return {.job = job, .data_digest = {}, .whole_digest = {}, .passes = {proof.reference, proof.sizes}};
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
  if (closed_)
    return;
  if (held_ && held_->job == x.job) {
    if (held_->proof)
      return options_.report_to(loaded_with(x.job, *held_->proof));
    if (!held_->data)
      return; // its answer is to come
    if (!held_->data->spoiled())
      return options_.report_to(loaded{x.job, held_->data->digest(), held_->whole_digest});
  }
  let_go();
  held_ = std::make_shared<holding>();
  held_->job = x.job;
  thread_ = std::thread([this, x = std::move(x), mine = held_, before = std::move(thread_)]() mutable {
    if (before.joinable())
      before.join(); // it has been told to stop
    run(x, *mine);
  });
}

std::shared_ptr<const row_proof> data_loader::proof_of(const job_id& job) {
  const lock held(mutex_);
  return held_ && held_->job == job ? held_->proof : nullptr;
}

void data_loader::forget(const job_id& job) {
  const lock held(mutex_);
  if (held_ && held_->job == job)
    let_go();
}

void data_loader::close() {
  const lock held(mutex_);
  closed_ = true;
  let_go();
}

void data_loader::let_go() {
  if (!held_)
    return;
  held_->away.request_stop();
  held_->stop = true;
  held_.reset();
}

/// Weights are data of the job too; which sizes of passes are good is tried with as many threads as will compute.
void data_loader::load_served(const load& x, holding& mine) {
  std::shared_ptr<const row_proof> proof;
  report answer;
  try {
    if (options_.on_fault_point)
      options_.on_fault_point({"load", {}, 0, 0});
    fetch_all(x.specification, options_.data, mine.away.get_token());
    load_model(x.specification, options_);
    const auto& job = x.specification;
    at::set_num_threads(static_cast<int>(job.threads > 0 ? job.threads : options_.cores));
    proof = std::make_shared<const row_proof>(prove_rows(job.model, device_of(options_)));
    require_usual_bits(device_of(options_), options_);
    answer = loaded_with(x.job, *proof);
  } catch (const killed&) {
    return killed_();
  } catch (const data_error& e) {
    answer = failed{{}, failure::data, 0, e.what(), {}};
  } catch (const std::exception& e) {
    device_of(options_).note_end(e);
    answer = failed{{}, failure::computation, 0, std::string("cannot load the model: ") + e.what(), {}};
  }
  const lock held(mutex_);
  if (held_.get() != &mine)
    return;
  options_.report_to(std::move(answer));
  if (proof)
    mine.proof = std::move(proof);
  else
    held_.reset(); // asked again, it tries again
}

void data_loader::run(const load& x, holding& mine) {
  if (x.specification.serves())
    return load_served(x, mine);
  std::shared_ptr<const dataset> data;
  report answer;
  try {
    if (options_.on_fault_point)
      options_.on_fault_point({"load", {}, 0, 0});
    require_precision(x.specification, options_.on);
    fetch_all(x.specification, options_.data, mine.away.get_token());
    load_model(x.specification, options_);
    require_usual_bits(device_of(options_), options_);
    data = shared_dataset(x.specification, options_.data);
    answer = loaded{x.job, data->digest(), {}};
  } catch (const killed&) {
    return killed_();
  } catch (const data_error& e) {
    answer = failed{{}, failure::data, 0, e.what(), {}};
  } catch (const std::exception& e) {
    answer = failed{{}, failure::computation, 0, std::string("cannot load the data: ") + e.what(), {}};
  }
  {
    const lock held(mutex_);
    if (held_.get() != &mine)
      return;
    options_.report_to(std::move(answer));
    if (!data)
      return held_.reset(); // asked again, it tries again
    mine.data = std::move(data);
  }
  read_whole(mine);
}

// Beside training, which goes first.
void data_loader::read_whole(holding& mine) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
  report answer;
  std::string whole;
  try {
    whole = mine.data->whole_digest(mine.stop);
    if (whole.empty())
      return;
    answer = loaded{mine.job, mine.data->digest(), whole};
  } catch (const data_error& e) {
    answer = failed{{}, failure::data, 0, e.what(), {}};
  }
  const lock held(mutex_);
  if (held_.get() != &mine)
    return;
  mine.whole_digest = std::move(whole);
  options_.report_to(std::move(answer));
}

} // namespace parcae
