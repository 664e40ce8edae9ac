@0xb0a6d6a1a6e0c3f7;

# What the manager's journal has of a job. Stored: fields are only ever added.

using Cxx = import "/capnp/c++.capnp";
using Client = import "client.capnp";
$Cxx.namespace("parcae::schema");

struct JournalVersion {
  steps @0 :UInt64;
  by @1 :UInt64;
}

struct JournalSlot {
  instance @0 :Text;
  life @1 :UInt64;
  index @2 :UInt32;
}

struct JournalParticipant {
  slot @0 :JournalSlot;
  host @1 :Text;
  port @2 :UInt16;
}

struct JournalPlacement {
  width @0 :UInt32;
  depth @1 :UInt32;
  firstLayer @2 :List(UInt32);
  participants @3 :List(JournalParticipant);
}

struct JournalResult {
  step @0 :UInt64;
  loss @1 :Float64;
  gradientNorm @2 :Float64;
  clipFactor @3 :Float64;
  learningRate @4 :Float64;
  stop @5 :Bool;
  snapshot @6 :Bool;
}

struct JournalShare {
  keeper @0 :JournalSlot;
  folder @1 :Text;
}

struct JournalDigest {
  layer @0 :UInt32;
  sha256 @1 :Text;
}

struct JobMemory {
  reserved @0 :UInt64;
  chain @1 :List(Client.ChainLink);
  grid @2 :JournalPlacement;
  last @12 :UInt64;
  result @3 :JournalResult;
  dataDigest @4 :Text;
  checkpoint @5 :JournalVersion;
  checkpointName @6 :Text;
  checkpointFolders @7 :List(JournalShare);
  checkpointsOnDisk @8 :List(UInt64);
  over @9 :Bool;
  good @10 :Bool;
  why @11 :Text;
  layerDigests @13 :List(JournalDigest);
  replayedSteps @14 :UInt64;
}

struct JobRecord {
  specification @0 :Client.JobSpecification;
  state @1 :UInt8;
  priority @2 :Int32;
  cancelAsked @3 :Bool;
  gaveWay @4 :Bool;
  why @5 :Text;
  owner @6 :Text;
  submittedMs @7 :Int64;     # since 1970; 0 from older builds
}

struct ClusterIdentity {
  life @0 :UInt64;
  secret @1 :List(UInt64);
  managers @2 :List(UInt64);
}

struct PoolBill {
  hours @0 :Float64;
  usd @1 :Float64;
}

struct Ledger {
  untilS @0 :Float64;
  usd @1 :Float64;
  pools @2 :List(LedgerPool);
  running @3 :List(LedgerInstance);
  usdPerH @4 :List(LedgerPrice);
  jobs @5 :List(LedgerJob);
  place @6 :Text;
  rates @7 :List(LedgerRates);
}

struct LedgerPool {
  pool @0 :Text;
  bill @1 :PoolBill;
}

struct LedgerInstance {
  instance @0 :Text;
  pool @1 :Text;
}

struct LedgerPrice {
  pool @0 :Text;
  usdPerH @1 :Float64;
}

struct LedgerJob {
  job @0 :UInt64;
  usd @1 :Float64;
}

struct MeasuredRates {
  work @0 :Text;
  samplesPerS @1 :List(Float64);
}

struct LedgerRates {
  kind @0 :Text;
  rates @1 :MeasuredRates;
}
