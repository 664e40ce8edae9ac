@0xb278f6942a5d2384;

# What goes over data connections besides the bytes of tensors. Every struct here has one fixed encoded size
# (gpu/dataplane/frames.hpp), so that a reader knows how much to read before it looks at anything.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("parcae::wire");

# Opens every connection, sent by the one who dials. Answered by a Verdict.
struct Greeting {
  magic @0 :UInt64;
  protocol @1 :UInt16;      # version of everything in this file
  purpose @2 :UInt16;       # 1: communicator of a generation, 2: snapshots, 3: shards of a generation, 4: passes, 5: its caches
  from @3 :UInt32;          # participant who dials; for snapshots the index of the sender's slot; for passes 0 rows, 1 tokens
  to @4 :UInt32;            # participant dialled; 0 for snapshots
  job @5 :UInt64;
  generation @6 :UInt64;    # 0 for snapshots
  tokenHigh @7 :UInt64;     # secret of the generation, or of this sender's snapshots of the job
  tokenLow @8 :UInt64;
  life @9 :UInt64;          # of the sender's instance; 0 for a generation
  name @10 :Data;           # of the sender's instance, always 104 bytes, zeros behind it; none for a generation
}

struct Verdict {
  accepted @0 :Bool;
  reason @1 :UInt16;        # refusal in gpu/dataplane/frames.hpp
}

# Before the payload of every message of a communicator.
struct Frame {
  kind @0 :UInt16;          # channel in gpu/dataplane/communicator.hpp
  index @1 :UInt32;
  step @2 :UInt64;
  length @3 :UInt64;        # bytes of payload that follow
  checksum @4 :UInt64;      # shards and caches only: XXH3 of the payload, seeded with that of this frame with checksum 0
}

# Before the parts of one layer in a stream of snapshots.
struct SnapshotShard {
  sequence @0 :UInt64;      # number of the snapshot on its stream
  remaining @1 :UInt32;     # shards of this snapshot that follow; the receiver acknowledges at 0
  layer @2 :UInt32;
  steps @3 :UInt64;
  generation @4 :UInt64;
  sizes @5 :List(UInt64);   # always 8 entries; bytes of each part, 0 after the last
  parts @6 :UInt32;
  stop @7 :Bool;            # from here the commit_result of the exchange that made the version
  step @8 :UInt64;
  loss @9 :Float64;
  gradientNorm @10 :Float64;
  clipFactor @11 :Float64;
  learningRate @12 :Float64;
  checksum @13 :UInt64;     # XXH3 of all parts, seeded with that of this header with checksum 0
}

# Says that every shard of a snapshot arrived and was taken over.
struct SnapshotAcknowledgement {
  sequence @0 :UInt64;
}
