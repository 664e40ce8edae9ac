@0xb1d5c7f2a9e64c13;
# What a client asks of the manager and what it answers. Carried as bytes in one actor message each way; decoded with bounds
# (client.hpp). Fields are only ever added, so that older and newer builds understand each other. Their names, and which
# group they are in, are not in the bytes: they are those of the structs.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("parcae::schema");

struct ModelSpecification {
  kind @0 :Text;
  layers @1 :UInt32;
  width @2 :UInt32;
  heads @3 :UInt32;
  sequence @4 :UInt32;
  vocabulary @5 :UInt32;
  dropout @6 :Float64;
  tiedEmbeddings @7 :Bool;
  maskToken @8 :UInt32 = 256;
  image @9 :UInt32 = 32;
  channels @10 :UInt32 = 3;
  classes @11 :UInt32 = 10;
  path @12 :Text;
  exported @13 :Text;
  images @14 :Bool;
  masked @15 :Bool;
  weights @16 :Text;
  weightsDigests @17 :List(Text);
  plugin @18 :Text;
}

struct DataSpecification {
  kind @0 :Text;
  path @1 :Text;
  samples @2 :UInt64 = 65536;
  seed @3 :UInt64 = 1;
  validation @4 :UInt64;
  source @5 :List(DataSource);
  tokenBytes @6 :UInt32 = 2;
  resize @7 :UInt32;
  augment @8 :Text = "none";
  flip @9 :Bool;
  mean @10 :List(Float64);
  deviation @11 :List(Float64);
}

struct DataSource {
  path @0 :Text;
  weight @1 :UInt32 = 1;
}

struct OptimizerSpecification {
  kind @0 :Text;
  learningRate @1 :Float64;
  schedule @2 :Text;
  warmupSteps @3 :UInt64;
  weightDecay @4 :Float64;
  momentum @5 :Float64;
  beta1 @6 :Float64;
  beta2 @7 :Float64;
  epsilon @8 :Float64;
  clipNorm @9 :Float64;
  decayNormsAndBiases @10 :Bool = true;
  rateFactors @11 :Text;
  scheduleFrom @12 :UInt64;
}

struct JobSpecification {
  name @0 :Text;
  steps @1 :UInt64;
  seed @2 :UInt64;
  threads @3 :UInt32;
  reproducible @4 :Bool;
  model @5 :ModelSpecification;
  data @6 :DataSpecification;
  globalBatch @7 :UInt32;
  microBatch @8 :UInt32;
  optimizer @9 :OptimizerSpecification;
  minDepth @10 :UInt32;
  maxDepth @11 :UInt32;
  minWidth @12 :UInt32;
  maxWidth @13 :UInt32;
  virtualReplicas @14 :UInt32;
  keeperEvery @15 :UInt64;
  keeperCopies @16 :UInt32;
  policy @17 :Text;
  planningIntervalMs @18 :UInt64;
  lookAhead @19 :UInt32;
  checkpointEvery @20 :UInt64;
  checkpointsKept @21 :UInt32;
  resume @22 :ResumePoint;
  evaluateEvery @23 :UInt64;
  recompute @24 :Bool;
  minInstances @25 :UInt32 = 1;
  patience @26 :UInt32;
  minDelta @27 :Float64;
  checkpoint @28 :CheckpointSpecification;
  precision @29 :Text = "float32";
  transport @30 :Text = "auto";
  onNotFinite @31 :Text = "stop";
  checkpointEveryMs @32 :UInt64;
  budget @33 :Budget;
  gradientSums @34 :Text = "float32";
  keeperShareOfLink @35 :Float64 = 0.5;
  feed @36 :Bool;
  kind @37 :Text = "train";
  serve @38 :Serving;
}

struct Serving {
  model @0 :Text;
  tokenizer @1 :Text = "auto";
  chat @2 :Text = "none";
  context @3 :UInt32;
  cacheBytes @4 :UInt64 = 1073741824;
  batch @5 :UInt32 = 64;
  chunk @6 :UInt32 = 64;
  queue @7 :UInt32 = 1000;
  waitMs @8 :UInt64 = 60000;
  stopTokens @9 :List(UInt32);
}

struct Budget {
  deadlineMs @0 :UInt64;     # from its submission; 0: none
  totalUsd @1 :Float64;      # 0: no limit
  hourlyUsd @2 :Float64;
  first @3 :Text = "deadline";
}

struct CheckpointSpecification {
  to @0 :Text;               # s3://BUCKET/PREFIX or a folder; empty: the keepers' own folders
  endpoint @1 :Text;
  region @2 :Text;
}

struct ResumePoint {
  steps @0 :UInt64;          # 0: starts anew
  folder @1 :Text;
  dataDigest @2 :Text;
}

struct StatusRequest {
  job @0 :UInt64;            # 0: all jobs
  changesFrom @1 :UInt64;    # leave out changes numbered below this
  eventsFrom @2 :UInt64;     # leave out events numbered below this
  decisionsFrom @3 :UInt64;  # leave out decisions numbered below this
  lossesFrom @4 :UInt64;     # leave out losses of versions below this
  newsFrom @5 :UInt64;       # leave out news numbered below this
  failuresFrom @6 :UInt64;   # leave out failures numbered below this
  afterJob @7 :UInt64;       # leave out jobs up to this
  afterInstance @8 :Text;    # leave out instances up to this, by name
  afterLife @9 :UInt64;      # and life
}

struct LossesRequest {
  job @0 :UInt64;
  from @1 :UInt64;           # the first step asked for
  points @2 :UInt64;         # so many at most, evenly from there to the newest; 0: each
}

struct Losses {
  every @0 :UInt64 = 1;      # steps from one in the block to the next
  block @1 :Data;            # a loss_block of the first of those asked for; empty: there are none
  validationLosses @2 :List(LossPoint);  # of points: likewise so many at most of what was evaluated
}

struct PreemptRequest {
  names @0 :List(Text);      # instances
  any @1 :UInt32;            # or: this many workers, chosen by seed
  seed @2 :UInt64;
  noticeMs @3 :UInt64;       # 0: without notice
}

struct FailureReport {
  instance @0 :Text;
  what @1 :Text;
  lines @2 :List(Text);      # the last of its log, oldest first
  job @3 :UInt64;            # that it worked for; 0: unknown
  ended @4 :Bool;            # it has died of it; else it lives
}

struct Submission {
  job @0 :JobSpecification;
  priority @1 :Int32;
}

struct Request {
  union {
    submit @0 :JobSpecification;  # of an older build: of priority 0
    status @1 :StatusRequest;
    preempt @2 :PreemptRequest;
    cancel @3 :UInt64;       # job
    checkpoint @4 :UInt64;   # job
    report @5 :FailureReport;
    enqueue @6 :Submission;
    check @7 :Submission;
    trace @8 :TraceRequest;
    losses @9 :LossesRequest;
  }
}

struct TraceRequest {
  job @0 :UInt64;
  steps @1 :UInt32;          # of each rank; 0: tell what came
  from @2 :UInt64;           # leave out traces numbered below this
}

struct StepSpan {
  part @0 :UInt8;            # a step_part
  microBatch @1 :UInt32;     # largest number: of none
  fromNs @2 :UInt64;         # since the rank began to train
  ns @3 :UInt64;
}

struct RankTrace {
  step @0 :UInt64;
  spans @1 :List(StepSpan);
  isCut @2 :Bool;
  rank @3 :UInt32;
}

struct Trace {
  job @0 :UInt64;
  generation @1 :UInt64;
  steps @2 :UInt32;
  depth @3 :UInt32;
  slots @4 :List(Text);      # by rank
  isOver @5 :Bool;
  first @6 :UInt64;          # number of the first trace here
  count @7 :UInt64;          # of all that came
  traces @8 :List(RankTrace);
  number @9 :UInt64;         # of this trace; a newer one takes its place
}

struct InstanceStatus {
  name @0 :Text;
  incarnation @1 :UInt64;
  role @2 :Text;
  state @3 :Text;            # alive, leaving, lost
  slots @4 :UInt32;
  host @5 :Text;
  port @6 :UInt16;
  processor @7 :Text;
  ageMs @8 :UInt64;
  expiresInMs @9 :Int64;     # -1: not under notice
  lostAtUs @10 :Int64;       # monotonic clock of the manager's machine, microseconds; -1: not lost
  warning @11 :Text;         # why it leaves, or may have to; empty: nothing is known
  slotsNeeded @12 :UInt32;   # under notice: slots that the job has not released
  gpus @13 :List(GpuState);  # a slot's each, or one for all
  pool @14 :Text;            # that it was rented of; empty: nobody's to give back
  slotBytes @15 :UInt64;     # of memory that each slot promises; 0: not known
}

struct GpuState {            # as protocols/values/gpu_state.hpp says
  place @0 :Text;
  busyPercent @1 :Int32 = -1;
  celsius @2 :Int32 = -1;
  throttled @3 :Text;
  corrected @4 :Int64 = -1;
  uncorrected @5 :Int64 = -1;
  xid @6 :UInt64;
  problem @7 :Text;
}

struct Change {
  number @0 :UInt64;         # 0, 1, ... within the job
  to @1 :UInt64;             # generation
  trigger @2 :Text;
  configuration @3 :Text;
  kind @4 :Text;
  bytes @5 :UInt64;
  replayedSteps @6 :UInt64;
  decidedMs @7 :Float64;
  plannedMs @8 :Float64;
  preparedMs @9 :Float64;
  stoppedMs @10 :Float64;
  readyMs @11 :Float64;
  activeMs @12 :Float64;
  firstCommitMs @13 :Float64;
  stallMs @14 :Float64;
  predictedMs @15 :Float64;  # of the stall, when first planned
  atUs @16 :Int64;           # as lostAtUs: when it began
  plans @17 :UInt32;         # times that it was planned
  waited @18 :Bool;          # for instances
  stateWaitMs @19 :Float64 = -1; # for moments, in the first step
}

struct Choice {
  configuration @0 :Text;
  samples @1 :Float64;       # expected over the look-ahead
}

struct Outlook {             # slots after one interval more
  mean @0 :Float64;
  low @1 :UInt32;
  high @2 :UInt32;
}

struct Decision {
  number @0 :UInt64;         # 0, 1, ... within the job
  atUs @1 :Int64;            # as lostAtUs
  trigger @2 :Text;
  policy @3 :Text;
  forecast @4 :List(Outlook);
  chosen @5 :Choice;
  runnersUp @6 :List(Choice);
  reason @7 :Text;
  generation @8 :UInt64;     # that carries it out; 0: nothing was changed
  expectedMs @9 :Float64;
  realisedMs @10 :Float64;   # -1: none yet
  p99Ms @11 :Float64;        # of requests, as expected; 0: nothing was measured, or it trains
  requestsPerS @12 :Float64; # that it could do; likewise
}

struct Event {
  number @0 :UInt64;
  atUs @1 :Int64;            # as lostAtUs
  level @2 :Text;
  text @3 :Text;
  job @4 :UInt64;            # that it is of; 0: of none
}

struct ChainLink {
  by @0 :UInt64;
  base @1 :UInt64;
  last @2 :UInt64;
}

struct DepthSteps {
  depth @0 :UInt64;
  steps @1 :UInt64;
}

struct LossPoint {
  steps @0 :UInt64;          # version that the step made
  loss @1 :Float64;
}

struct KeeperStatus {
  keeper @0 :Text;
  steps @1 :UInt64;          # newest version that it holds something of
  layers @2 :UInt32;         # of that version
}

struct JobStatus {
  id @0 :UInt64;
  name @1 :Text;
  state @2 :Text;            # queued, running, done, failed, cancelled
  phase @3 :Text;
  problem @4 :Text;
  generation @5 :UInt64;
  steps @6 :UInt64;
  stepsDone @7 :UInt64;
  width @8 :UInt32;
  depth @9 :UInt32;
  grid @10 :List(Text);      # slots by rank = pipeline * depth + stage; empty while nothing runs
  loss @11 :Float64;
  gradientNorm @12 :Float64;
  learningRate @13 :Float64;
  stepMs @14 :Float64;
  samplesPerS @15 :Float64;
  protectedSteps @16 :UInt64;
  protectedNow @17 :Bool;
  replayedSteps @18 :UInt64;
  migrations :group {
    intraStage @19 :UInt64;
    interStage @20 :UInt64;
    pipeline @21 :UInt64;
    none @22 :UInt64;
  }
  stepsByDepth @23 :List(DepthSteps);
  changeCount @24 :UInt64;
  changes @25 :List(Change);
  chain @26 :List(ChainLink);
  parametersSha256 @27 :Text;
  eventCount @28 :UInt64;
  events @29 :List(Event);
  checkpointSteps @30 :UInt64;
  checkpointFolders @31 :List(CheckpointFolder);
  checkpointProblem @32 :Text;
  decisionCount @33 :UInt64;
  decisions @34 :List(Decision);
  evaluatedSteps @35 :Int64 = -1;  # version last evaluated on the validation samples; -1: none
  validationLoss @36 :Float64;
  gridIncarnations @37 :List(UInt64);  # as grid
  losses @38 :List(LossPoint);
  validationLosses @39 :List(LossPoint);
  timeLeftMs @40 :Float64 = -1;    # -1: unknown
  keepers @41 :List(KeeperStatus);
  layers @42 :UInt32;
  configurations @43 :List(Configuration);  # that the planner last chose from
  layerCosts @44 :List(LayerCost);
  memory @45 :List(Memory);  # by rank, as far as heard
  changeFigures @46 :Figures;
  otherMs @47 :Float64;      # processor time per step and rank that is no layer's
  detailed @48 :Bool;        # false: losses, changes, events and decisions are left out
  priority @49 :Int32;
  lossSteps @50 :Int64 = -1; # version that loss is of; -1: there is none
  idle @51 :Text;            # why workers are without a place
  minInstances @52 :UInt32;  # that it asks for before it begins; 0: an older build does not tell
  dataWaitMs @53 :Float64;   # per step, of the rank that waited longest for samples
  dataWaitFor @54 :Text;     # that rank's slot and the file; empty: none waited
  copies @55 :UInt32;        # keepers that hold each layer, at least
  copiesProblem @56 :Text;   # why there are less than the job asks for; empty: there are not
  copiedSteps @57 :UInt64;   # the version of which there are that many copies
  transport :group {         # what moves tensors between its slots
    by @58 :Text;            # tcp, nccl; empty: nobody has said
    device @59 :Text;        # what computes, for people
    reason @60 :Text;        # why it is not NCCL; empty: it is, or was not to be
    peers :group {           # between GPUs of one process
      used @69 :Bool;        # they copy from one to the other
      reason @70 :Text;      # why not, or why not directly
    }
  }
  owner @61 :Text;           # name of the certificate that submitted it; empty: without one
  resumedFrom @62 :Text;     # place of the checkpoint that it was started from
  notOnDisk @63 :Text;       # why there is no checkpoint yet, though there should be; empty: there is, or none is due
  links @64 :List(Link);     # what moves each kind of tensors between its slots
  globalBatch @65 :UInt32;   # samples in each step; 0: an older build does not tell
  planningIntervalMs @66 :UInt64;  # likewise
  stepTimes @67 :List(SlotTimes);  # by rank, as far as heard
  slowestSlot @68 :Text;     # of these: that waits least for others
  gradientSums @71 :Text;    # what they are made of: float32, bfloat16; empty: an older build does not tell
  kind @72 :Text = "train";  # or serve
  gateway @73 :Text;         # that answers; empty: none
  http @74 :Text;            # where
  gateways @75 :UInt32;
  gatewayProblem @76 :Text;
  cacheBlocks @77 :UInt64;   # of all ranks
  freeBlocks @78 :UInt64;
  requests @79 :Requests;
}

struct Requests {            # as protocols/values/serving.hpp says
  queued @0 :UInt32;
  running @1 :UInt32;
  answered @2 :UInt64;
  refused @3 :UInt64;
  failed @4 :UInt64;
  tokens @5 :UInt64;
  recomputed @6 :UInt64;
  broken @7 :UInt64;
  arrivalsPerS @8 :Float64;
  tokensPerS @9 :Float64;
  meanPrompt @10 :Float64;
  meanAnswer @11 :Float64;
  firstToken @12 :WaitQuantiles;
  betweenTokens @13 :WaitQuantiles;
}

struct WaitQuantiles {       # ms
  p50Ms @0 :Float64;
  p99Ms @1 :Float64;
}

struct SlotTimes {           # ms of a step, means of the last seconds
  forwardMs @0 :Float64;
  backwardMs @1 :Float64;
  recomputeMs @2 :Float64;
  pipelineMs @3 :Float64;
  transferMs @4 :Float64;
  reductionMs @5 :Float64;
  dataMs @6 :Float64;
  exchangeMs @7 :Float64;
  snapshotMs @8 :Float64;
  optimizerMs @9 :Float64;
  otherMs @10 :Float64;
  slot @11 :Text;
  coreMs @12 :Float64;       # ready to compute, but without a core
}

struct Link {
  kind @0 :Text;             # activations, all-reduce, shards
  by @1 :Text;               # tcp, nccl, peer: copies between GPUs of one process
  reason @2 :Text;           # where they are, and why it is no better; empty: nothing is
}

struct Configuration {
  width @0 :UInt32;
  depth @1 :UInt32;
  predictedSamplesPerS @2 :Float64;  # by the model alone
  samplesPerS @3 :Float64;   # measured, or corrected by the error seen elsewhere
  lowSamplesPerS @4 :Float64;
  highSamplesPerS @5 :Float64;
  measuredSteps @6 :UInt64;  # 0: not measured
  visits @7 :UInt64;
  measuredByCpu @8 :Bool;
}

struct LayerCost {               # times in ms
  forwardMs @0 :Float64;
  backwardMs @1 :Float64;
  optimizerMs @2 :Float64;
  gradientBytes @3 :UInt64;
  outputBytes @4 :UInt64;
  stateBytes @5 :UInt64;
  activationBytes @6 :UInt64;
  tiedBytes @7 :UInt64;
  waking :group {                # more, after the thread has slept
    forwardMs @8 :Float64;
    backwardMs @9 :Float64;
    optimizerMs @10 :Float64;
  }
}

struct Memory {
  slot @0 :Text;
  peakBytes @1 :UInt64;
  estimatedBytes @2 :UInt64;
  reservedBytes @3 :UInt64;
}

struct Figures {             # what changes cost; ms
  linkBytesPerMs @0 :Float64;
  settleMs @1 :Float64;
  planMs @2 :Float64;
  prepareMs @3 :Float64;
  transferMs @4 :Float64;
  activateMs @5 :Float64;
  rankMs @6 :Float64;
  detectMs @7 :Float64;
  lossMs @8 :Float64;
}

struct CheckpointFolder {
  keeper @0 :Text;
  folder @1 :Text;
}

struct Failure {
  number @0 :UInt64;
  atUs @1 :Int64;            # as lostAtUs
  instance @2 :Text;
  what @3 :Text;
  lines @4 :List(Text);
  job @5 :UInt64;            # that ran, or ran last; 0: none did
  ended @6 :Bool;            # the process died of it
}

struct Status {
  nowUs @0 :Int64;           # as lostAtUs
  instances @1 :List(InstanceStatus);
  jobs @2 :List(JobStatus);
  newsCount @3 :UInt64;
  news @4 :List(Event);      # of the instances
  failureCount @5 :UInt64;
  failures @6 :List(Failure);
  warning @7 :Text;          # of the manager itself
  wallUs @8 :Int64;          # the same moment as now, since 1970; 0 from older builds
  market @9 :Market;         # of a manager that rents
}

struct Pool {
  name @0 :Text;
  place @1 :Text;
  spot @2 :Bool;
  usdPerH @3 :Float64;       # of an instance, now
  want @4 :UInt32;           # instances
  have @5 :UInt32;           # that are there and stay
  hours @6 :Float64;         # of an instance, paid for so far
  usd @7 :Float64;
  why @8 :Text;              # why there are no more, as the hook says
}

struct Market {
  pools @0 :List(Pool);      # none: it rents nothing
  usd @1 :Float64;           # spent so far, on all jobs
  job @2 :UInt64;            # that is rented for; 0: none
  jobUsd @3 :Float64;        # spent while it was
  deadlineUs @4 :Int64;      # since 1970; 0: none
  usdPerSample @5 :Float64;  # what one sample more is worth now
  expectedUsd @6 :Float64;   # still to be spent
  expectedUs @7 :Int64;      # end, since 1970; 0: not known
  reserve @8 :Bool;          # on demand for good
  spent @9 :Bool;            # the money is spent
  why @10 :Text;             # a sentence on what is held
  runnersUp @11 :List(Text); # what was worth less, best first
  feed @12 :Text;            # what is wrong with it; empty: nothing
  hook @13 :Text;
  expectedUsdSpread @14 :UsdSpread; # 10, 50, 90 %; all 0: not known
  expectedUsSpread @15 :UsSpread;   # likewise; -1: not done by then
}

struct UsdSpread {
  p10 @0 :Float64;
  p50 @1 :Float64;
  p90 @2 :Float64;
}

struct UsSpread {
  p10 @0 :Int64;
  p50 @1 :Int64;
  p90 @2 :Int64;
}

struct Error {
  code @0 :Text;             # a name of parcae_error
  text @1 :Text;
}

struct Checked {
  obstacle @0 :Text;
  before @1 :List(Text);
  problems @2 :List(Text);
  unknown @3 :List(Text);
}

struct Reply {
  union {
    error @0 :Error;
    submitted @1 :UInt64;    # job
    status @2 :Status;
    preempted @3 :List(Text);
    cancelled @4 :UInt64;    # job
    checkpointing @5 :UInt64; # job
    reported @6 :Void;
    checked @7 :Checked;
    trace @10 :Trace;
    losses @11 :Losses;
  }
  managerLife @8 :UInt64;    # with submitted and status: random per manager process, 0 from older ones
  more @9 :Bool;             # with status: it is not all
}
