// A job on a folder of images, with random crops and flips, from real files to the parameters at the end.

#include "tests/support/cluster.hpp"
#include "tests/support/data_folder.hpp"

namespace parcae {
namespace {

struct image_job : cluster_test {
  data_folder data;
};

// given: a ResNet on JPEG and PNG files with labels by folder, parts and mirrors of them drawn; eight workers that had
// a place go, six of them by SIGKILL / expected: the parameters and losses of the undisturbed run, bit for bit
TEST_F(image_job, preemptions_cost_no_bit) {
  auto job = endless_job();
  job.name = "images";
  job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16, .classes = 3};
  job.data = {.kind = "image_folder",
              .path = data.images(),
              .validation = 6,
              .resize = 18,
              .augment = "crop",
              .flip = true,
              .mean = {0.4, 0.5, 0.6},
              .deviation = {0.2, 0.25, 0.3}};
  job.evaluate_every = 20;
  job.micro_batch = 2;
  const auto id = start_job(job, {"w0", "w1", "w2"});
  preempt(id, 8);
  const auto end = end_behind_checkpoint(id);
  EXPECT_GE(job_of(cluster->client().status({.job = id}), id).generation, 6u) << "preemptions fell together";
  job.steps = end.steps_done;
  const auto alone = undisturbed(job);
  EXPECT_EQ(end.parameters_sha256, alone.parameters_sha256);
  EXPECT_EQ(end.loss, alone.loss);
  EXPECT_EQ(end.validation_loss, alone.validation_loss);
}

} // namespace
} // namespace parcae
