#pragma once

// A device made of ordinary memory, for tests. Who touches its memory with the processor crashes, and copies come late,
// by chance, unless an event orders them: so what would be wrong on a GPU is wrong here, too.

#include "gpu/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace parcae {

inline constexpr std::uint32_t fake_devices = 16;

/// Number 0 … fake_devices - 1 of this process; LibTorch's "privateuseone:number" once know_fake_devices was called.
/// They stay until the process ends.
///
/// Memory is mapped twice, and only the mapping that cannot be touched is given out; what is newly given out has any
/// values. Work on the compute stream is done at once by who gives it, that of other streams by a thread for each, with
/// pauses. Throws device_error where a GPU would fail: another device's memory, or memory of the host that is not
/// pinned.
device& fake_device(std::uint32_t number);

/// Others, whose compute stream's work is also done by a thread, later. Nothing of LibTorch is there.
device& late_fake_device(std::uint32_t number);

/// Has the stream call f in its turn: for doubles of libraries. What comes after it in the stream waits.
void give_work(stream& on, std::function<void()> f);

/// How often something was copied from device to device, or within one by the same way.
std::uint64_t copies_between_devices();
/// How often something was copied within one by its streams.
std::uint64_t copies_within_devices();
/// While it lives what is copied between devices has one other bit, as on machines that mislead a GPU about another's
/// memory.
class spoilt_copies {
public:
  spoilt_copies();
  ~spoilt_copies();
  spoilt_copies(const spoilt_copies&) = delete;
};

/// How many events were recorded in it.
std::uint64_t events_of(const stream& x);

/// Sees what any of them is given to compute, before it is computed: kernels and LibTorch's operators by name, the
/// latter with the types and sizes of their tensors. On any thread. Empty: nobody does.
using work_watch = std::function<void(std::uint32_t number, const std::string& name, const std::string& sizes)>;
void watch_work(work_watch f);
/// For those who give LibTorch's. Empty: nobody sees it.
work_watch watch_of_work();

/// Whether these bytes are of memory that was allocated and not given back.
bool is_given_out(const void* x, std::size_t bytes);

/// These bytes are in use, until the last copy of it goes: whether any of them was given back meanwhile, or before.
std::function<bool()> given_back_since(const void* x, std::size_t bytes);

/// While it lives only so many bytes of a device are left, and LibTorch's library keeps so many more.
class little_memory {
public:
  /// What is kept is taken again at once the first `again` times that it is given back, as by training beside.
  little_memory(device& on, std::size_t left, std::size_t kept, std::uint32_t again = 0);
  ~little_memory();
  little_memory(const little_memory&) = delete;

  /// How often it was asked to give back.
  std::uint32_t given_back() const;

private:
  device& on_;
};

/// LibTorch's library has no memory left there, says so by an exception, and is counted. Whoever calls this himself
/// does without, and goes on.
void run_short(device& on);

/// Calls about events: record, done and wait, the end of one; those that make pinned memory, or a stream.
enum class device_call : std::uint8_t { record, look, end, pin, make_stream };
/// While it lives such calls of a device do not return, as a driver's may not while something is stuck there. What the
/// device was given goes on.
class stuck_calls {
public:
  stuck_calls(device& on, device_call what);
  ~stuck_calls();
  stuck_calls(const stuck_calls&) = delete;

  /// So many are under way.
  std::uint32_t calls() const;
  /// Whether f returns meanwhile. What it waits for goes on otherwise.
  bool are_not_in_the_way_of(const std::function<void()>& f);

private:
  device& on_;
};

/// That is given out of the host's pinned memory, by all of them.
std::size_t pinned_bytes();
bool is_pinned(const void* x, std::size_t bytes);
/// From now on that device finds no room for more at once.
void allow_pinned(device& of, std::size_t bytes);

/// Where the processor finds what is at x, which a device has given out: for operators in tests.
void* readable(const void* x);

/// Lets LibTorch have tensors there; its operators compute with the processor's, on copies. To be called before
/// LibTorch is used with them, as often as one likes.
void know_fake_devices();

} // namespace parcae
