@0xfdd0ed61ec35bb30;

# What a keeper writes beside the tensors of a checkpoint. Stored: fields are only ever added.

using Cxx = import "/capnp/c++.capnp";
using Client = import "client.capnp";
$Cxx.namespace("parcae::schema");

struct StoredLayer {
  layer @0 :UInt32;
  checksum @1 :UInt64;       # XXH3-64 of all its parts, one after the other
}

struct Manifest {
  steps @0 :UInt64;          # version of every layer
  generation @1 :UInt64;
  loss @2 :Float64;          # result of the step that made it
  gradientNorm @3 :Float64;
  learningRate @4 :Float64;
  clipFactor @5 :Float64;
  specification @6 :Client.JobSpecification;
  dataDigest @7 :Text;       # of the data it was trained on
  tensors @8 :Text;          # name of the safetensors file, in the same folder
  modelLayers @9 :UInt32;    # how many make the checkpoint complete
  layers @10 :List(StoredLayer);
}
