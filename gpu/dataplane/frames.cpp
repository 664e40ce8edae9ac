#include "gpu/dataplane/frames.hpp"

#include "protocols/frame/frame.capnp.h"
#include "protocols/model/snapshot.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <algorithm>
#include <cstring>

namespace parcae {

namespace {

constexpr std::uint64_t greeting_magic = 0x7061'7263'6165'3031; // "parcae01"

// A message is its root pointer, the root struct, and nothing else (greetings: and a name; snapshot frames: and the
// list of sizes). The pointer to that is part of the struct.
template <class Schema, std::size_t Size, std::size_t More = 0>
constexpr bool size_is_right = (1 + capnp::sizeInWords<Schema>() + More) * sizeof(capnp::word) == Size;

static_assert(size_is_right<wire::Greeting, greeting_size, max_name_bytes / sizeof(capnp::word)>);
static_assert(size_is_right<wire::Verdict, verdict_size>);
static_assert(size_is_right<wire::Frame, frame_size>);
static_assert(size_is_right<wire::SnapshotShard, snapshot_frame_size, max_parts>);
static_assert(size_is_right<wire::SnapshotAcknowledgement, acknowledgement_size>);

template <class Schema, std::size_t Size, class Fill>
std::array<std::byte, Size> written(Fill&& fill) {
  capnp::word words[Size / sizeof(capnp::word)] = {};
  std::array<std::byte, Size> result;
  capnp::FlatMessageBuilder message(kj::arrayPtr(words, Size / sizeof(capnp::word)));
  fill(message.initRoot<Schema>());
  std::memcpy(result.data(), words, Size);
  return result;
}

template <class Result, class Schema, std::size_t Size, class Read>
std::optional<Result> parsed(std::span<const std::byte, Size> bytes, Read&& read) {
  capnp::word words[Size / sizeof(capnp::word)];
  std::memcpy(words, bytes.data(), Size);
  capnp::ReaderOptions limits;
  limits.traversalLimitInWords = 2 * Size / sizeof(capnp::word);
  limits.nestingLimit = 2;
  try {
    kj::ArrayPtr<const capnp::word> segment(words, Size / sizeof(capnp::word));
    capnp::SegmentArrayMessageReader message(kj::arrayPtr(&segment, 1), limits);
    return read(message.getRoot<Schema>());
  } catch (const kj::Exception&) {
    return std::nullopt;
  }
}

} // namespace

std::string render(refusal x) {
  switch (x) {
  case refusal::none:
    return "accepted";
  case refusal::protocol:
    return "another protocol version";
  case refusal::token:
    return "wrong token";
  case refusal::crowded:
    return "too many connections are waiting";
  case refusal::unknown:
    return "nobody expects that there";
  case refusal::name:
    return "its certificate is of another";
  }
  return "unknown reason " + std::to_string(static_cast<unsigned>(x));
}

std::array<std::byte, greeting_size> encode(const greeting& x) {
  return written<wire::Greeting, greeting_size>([&](wire::Greeting::Builder to) {
    to.setMagic(greeting_magic);
    to.setProtocol(x.protocol);
    to.setPurpose(static_cast<std::uint16_t>(x.what));
    to.setFrom(x.from);
    to.setTo(x.to);
    to.setJob(x.job.value);
    to.setGeneration(x.of.value);
    to.setTokenHigh(x.token.high);
    to.setTokenLow(x.token.low);
    to.setLife(x.life.value);
    std::memcpy(to.initName(max_name_bytes).begin(), x.name.data(), x.name.size());
  });
}

std::optional<greeting> decode_greeting(std::span<const std::byte, greeting_size> bytes) {
  auto result = parsed<greeting, wire::Greeting>(bytes, [](wire::Greeting::Reader from) -> std::optional<greeting> {
    if (from.getMagic() != greeting_magic)
      return std::nullopt;
    greeting x;
    x.protocol = from.getProtocol();
    x.what = static_cast<purpose>(from.getPurpose());
    if (x.protocol == data_protocol_version && (x.what < purpose::generation || x.what > purpose::caches))
      return std::nullopt;
    x.from = from.getFrom();
    x.to = from.getTo();
    x.job.value = from.getJob();
    x.of.value = from.getGeneration();
    x.token = {from.getTokenHigh(), from.getTokenLow()};
    x.life.value = from.getLife();
    const auto name = from.getName();
    if (name.size() != max_name_bytes)
      return std::nullopt;
    x.name.assign(reinterpret_cast<const char*>(name.begin()), name.size());
    x.name.resize(x.name.find_last_not_of('\0') + 1);
    return x;
  });
  // One form for each; of another version only the version is read.
  if (result && result->protocol == data_protocol_version && !std::ranges::equal(encode(*result), bytes))
    return std::nullopt;
  return result;
}

std::array<std::byte, verdict_size> encode(refusal x) {
  return written<wire::Verdict, verdict_size>([&](wire::Verdict::Builder to) {
    to.setAccepted(x == refusal::none);
    to.setReason(static_cast<std::uint16_t>(x));
  });
}

std::optional<refusal> decode_verdict(std::span<const std::byte, verdict_size> bytes) {
  return parsed<refusal, wire::Verdict>(bytes, [](wire::Verdict::Reader from) -> std::optional<refusal> {
    auto reason = static_cast<refusal>(from.getReason());
    if (from.getAccepted() != (reason == refusal::none))
      return std::nullopt;
    return reason;
  });
}

std::array<std::byte, frame_size> encode(const frame& x) {
  return written<wire::Frame, frame_size>([&](wire::Frame::Builder to) {
    to.setKind(static_cast<std::uint16_t>(x.what.kind));
    to.setIndex(x.what.index);
    to.setStep(x.what.step);
    to.setLength(x.length);
    to.setChecksum(x.checksum);
  });
}

std::optional<frame> decode_frame(std::span<const std::byte, frame_size> bytes) {
  return parsed<frame, wire::Frame>(bytes, [](wire::Frame::Reader from) -> std::optional<frame> {
    return frame{
        {static_cast<channel>(from.getKind()), from.getStep(), from.getIndex()}, from.getLength(), from.getChecksum()};
  });
}

std::array<std::byte, snapshot_frame_size> encode(const snapshot_frame& x) {
  return written<wire::SnapshotShard, snapshot_frame_size>([&](wire::SnapshotShard::Builder to) {
    to.setSequence(x.sequence);
    to.setRemaining(x.remaining);
    to.setLayer(x.layer);
    to.setSteps(x.at.steps);
    to.setGeneration(x.at.by.value);
    auto sizes = to.initSizes(max_parts);
    for (unsigned i = 0; i < x.sizes.size(); ++i)
      sizes.set(i, x.sizes[i]);
    to.setParts(static_cast<std::uint32_t>(x.sizes.size()));
    to.setStop(x.result.stop);
    to.setStep(x.result.step);
    to.setLoss(x.result.loss);
    to.setGradientNorm(x.result.gradient_norm);
    to.setClipFactor(x.result.clip_factor);
    to.setLearningRate(x.result.learning_rate);
    to.setChecksum(x.checksum);
  });
}

std::optional<snapshot_frame> decode_snapshot_frame(std::span<const std::byte, snapshot_frame_size> bytes) {
  return parsed<snapshot_frame, wire::SnapshotShard>(
      bytes, [](wire::SnapshotShard::Reader from) -> std::optional<snapshot_frame> {
        snapshot_frame x;
        x.sequence = from.getSequence();
        x.remaining = from.getRemaining();
        x.layer = from.getLayer();
        x.at = {from.getSteps(), {from.getGeneration()}};
        auto sizes = from.getSizes();
        if (from.getParts() > max_parts || sizes.size() != max_parts)
          return std::nullopt;
        for (unsigned i = 0; i < from.getParts(); ++i) {
          if (sizes[i] > max_part_bytes)
            return std::nullopt;
          x.sizes.push_back(sizes[i]);
        }
        x.result.stop = from.getStop();
        x.result.step = from.getStep();
        x.result.loss = from.getLoss();
        x.result.gradient_norm = from.getGradientNorm();
        x.result.clip_factor = from.getClipFactor();
        x.result.learning_rate = from.getLearningRate();
        x.checksum = from.getChecksum();
        return x;
      });
}

std::array<std::byte, acknowledgement_size> encode_acknowledgement(std::uint64_t sequence) {
  return written<wire::SnapshotAcknowledgement, acknowledgement_size>(
      [&](wire::SnapshotAcknowledgement::Builder to) { to.setSequence(sequence); });
}

std::optional<std::uint64_t> decode_acknowledgement(std::span<const std::byte, acknowledgement_size> bytes) {
  return parsed<std::uint64_t, wire::SnapshotAcknowledgement>(
      bytes,
      [](wire::SnapshotAcknowledgement::Reader from) -> std::optional<std::uint64_t> { return from.getSequence(); });
}

} // namespace parcae
