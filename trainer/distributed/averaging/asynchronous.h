// Asynchronous SGD over rank 0: a rank sends its gradient and gets the parameters as they are then, whatever the others
// do.
//
// Rank 0 has the parameter server, with a thread for each other rank, and trains as well, through the same server.
// Where all ranks have made the same number of steps, at a checkpoint and at the end, they take the server's
// parameters: what rank 0 holds then is the whole state.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/config/options.h"
#include "trainer/distributed/averaging/averaging.h"
#include "trainer/distributed/averaging/parameter_server.h"

namespace gloo_bypass::trainer {

class Asynchronous final : public Averaging {
 public:
  // Keeps references to all four.
  Asynchronous(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, const Options& options);
  ~Asynchronous() override;

  void beginStep(int64_t step) override;
  bool ranksAgree() const override { return false; }
  void setLearningRate(double rate) override { rate_ = rate; }
  void updateParameters() override;
  // update, the number of this step's among all ranks'; version, how many were in the parameters that it is of;
  // staleness, how many came between; t_withheld_s, how long the bound made this rank wait.
  void addMetrics(nlohmann::json& record) const override;
  // staleness_mean, staleness_max.
  void addSummary(nlohmann::json& record) const override;
  void beforeCheckpoint() override { meet(); }
  void finish() override;
  RankState rankState() const override { return {}; }  // rank 0's are the checkpoint's

 private:
  class Service;  // of one other rank, at rank 0
  void begin();
  void meet();
  bool haveOthersCome();  // after waiting for them for pause()
  std::chrono::duration<double> pause() const;
  ParameterServer::Answer pushOverNetwork(const at::Tensor& gradient);

  const Options& options_;
  std::optional<ParameterServer> server_;  // rank 0's
  std::vector<std::unique_ptr<Service>> services_;
  bool hasBegun_ = false;
  double rate_ = 0;
  int64_t version_ = 0, versionBefore_ = 0;  // of this rank's parameters; of those that the last gradient is of
  ParameterServer::Answer last_;             // without the parameters
  int64_t steps_ = 0, stalenessSum_ = 0, stalenessMax_ = 0;
};

}  // namespace gloo_bypass::trainer
