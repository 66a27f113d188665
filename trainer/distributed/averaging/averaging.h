// Ranks train on their own and meet now and then, or meet only some of the others: no gradient passes c10d's reducer.
//
// Every rank begins with rank 0's parameters. Between meetings a rank keeps its own parameters and moments; a file of
// its own beside a checkpoint holds them. finish() makes the ranks equal: the saved model is their mean. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class Averaging : public Parallelism {
 public:
  // Keeps references to all three.
  Averaging(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator);

  void beginStep(int64_t step) override;
  void finish() override;
  // t_average_s, the time of this step's exchange; averaged, whether there was one; distance, where it is known: how
  // far ranks had gone apart, the root of the mean over ranks of ||x_i - mean||^2.
  void addMetrics(nlohmann::json& record) const override;
  // synchronisations, exchanges of the run; distance, at its end.
  void addSummary(nlohmann::json& record) const override;
  RankState rankState() const override;

 protected:
  std::vector<at::Tensor>& parameters() { return parameters_; }
  GroupCommunicator& communicator() { return communicator_; }
  int64_t step() const { return step_; }
  // Of `flat` (n) over all ranks, by the ring; notes how far this one was from it.
  at::Tensor meanOverRanks(const at::Tensor& flat);

  // Notes that ranks exchange something from its making to its end. A step's exchange may be in parts: its last one
  // counts.
  enum class Part { kNotLast, kLast };
  class Exchange {
   public:
    explicit Exchange(Averaging& owner, Part part = Part::kLast);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    Averaging& owner_;
    const Part part_;
    const std::chrono::steady_clock::time_point begin_;
  };

 private:
  std::vector<std::pair<std::string, at::Tensor>> named_;
  std::vector<at::Tensor> parameters_;
  GroupCommunicator& communicator_;
  int64_t step_ = 0;
  double seconds_ = 0;
  int64_t exchanges_ = 0, exchangesBefore_ = 0;  // of the run; before this step
  std::optional<double> distance_;
};

// Keeps a reference to the options.
std::unique_ptr<Parallelism> makeAveraging(const Options& options, const Gpt2& model, AdamW& optimizer,
                                           GroupCommunicator& communicator);

}  // namespace gloo_bypass::trainer
