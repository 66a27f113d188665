#include "trainer/distributed/averaging/asynchronous.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/distributed/averaging/flat.h"

namespace gloo_bypass::trainer {
namespace {

// Before the gradient (rate, and the version that it is of) and before the parameters (what the server did). One
// message each way, so that the numbers cost no trip of their own.
struct Header {
  int64_t version = 0, update = 0, staleness = 0;
  double rate = 0, withheldSeconds = 0;
  // Of a message without a gradient: have all ranks made as many steps? Of its answer: they have. 8 bytes, so that what
  // follows begins at a multiple of any dtype's size.
  int64_t others = 0;
};

// A rank that waits for slower ones asks so often within --timeout: the wait for each answer is much shorter.
constexpr double kQuestionsInATimeout = 4;

at::Tensor emptyMessage(const at::Tensor& payload) {
  return at::empty({static_cast<int64_t>(sizeof(Header) + payload.nbytes())}, at::kByte);
}

// The payload, as what it is (n).
at::Tensor payloadOf(const at::Tensor& message, at::ScalarType type) {
  constexpr auto kBegin = static_cast<int64_t>(sizeof(Header));
  return message.narrow(0, kBegin, message.numel() - kBegin).view(type);
}

Header headerOf(const at::Tensor& message) {
  Header header;
  std::memcpy(&header, message.data_ptr(), sizeof header);
  return header;
}

void setHeader(at::Tensor& message, const Header& header) { std::memcpy(message.data_ptr(), &header, sizeof header); }

void fill(at::Tensor& message, const Header& header, const at::Tensor& payload) {
  setHeader(message, header);
  payloadOf(message, payload.scalar_type()).copy_(payload);
}

}  // namespace

// Answers one rank, until it is stopped or the rank is gone.
class Asynchronous::Service {
 public:
  // `pause`: the longest until a question for the others is answered.
  Service(GroupCommunicator& communicator, ParameterServer& server, int rank, const at::Tensor& parameters,
          std::chrono::duration<double> pause)
      : communicator_(communicator),
        server_(server),
        rank_(rank),
        pause_(pause),
        type_(parameters.scalar_type()),
        request_(emptyMessage(parameters)),
        answer_(emptyMessage(parameters)),
        transfer_(communicator.startReceive(request_, rank)),
        thread_([this] { serve(); }) {}

  ~Service() {
    {
      const std::lock_guard lock(mutex_);
      isStopped_ = true;
      transfer_->giveUp();
    }
    thread_.join();
  }

  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

 private:
  void serve() {
    try {
      while (transfer_->wait()) {
        const Header asked = headerOf(request_);
        if (asked.others != 0) {
          setHeader(answer_, {.others = server_.awaitOthers(rank_, pause_) ? 1 : 0});
        } else {
          const auto answer = server_.push(rank_, payloadOf(request_, type_), asked.version, asked.rate);
          fill(answer_,
               {.version = answer.version,
                .update = answer.update,
                .staleness = answer.staleness,
                .withheldSeconds = answer.withheldSeconds},
               answer.parameters);
        }
        // Before the answer is sent: its next gradient then finds somebody who takes it, without asking.
        auto next = communicator_.startReceive(request_, rank_);
        if (!isNow(communicator_.startSend(answer_, rank_)) || !transfer_->wait() || !isNow(std::move(next))) return;
      }
    } catch (...) {
      server_.fail(std::current_exception());
    }
  }

  // What stop gives up. False: it has come already.
  bool isNow(std::unique_ptr<Transfer> transfer) {
    const std::lock_guard lock(mutex_);
    transfer_ = std::move(transfer);
    return !isStopped_;
  }

  GroupCommunicator& communicator_;
  ParameterServer& server_;
  const int rank_;
  const std::chrono::duration<double> pause_;
  const at::ScalarType type_;
  at::Tensor request_, answer_;
  std::mutex mutex_;  // of what follows
  std::unique_ptr<Transfer> transfer_;
  bool isStopped_ = false;
  std::thread thread_;  // last: it uses all of them
};

Asynchronous::Asynchronous(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, const Options& options)
    : Averaging(model, optimizer, communicator), options_(options) {}

Asynchronous::~Asynchronous() {
  // Only where the run failed are there any left: whoever is withheld is let go, and the threads end.
  if (server_) server_->fail(std::make_exception_ptr(ProgramError("the run has ended")));
  services_.clear();
}

// From here on, so that what a checkpoint held is there.
void Asynchronous::begin() {
  hasBegun_ = true;
  version_ = step() * communicator().worldSize();
  if (communicator().rank() != 0) return;
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : this->parameters()) parameters.push_back(parameter.detach().clone().requires_grad_());
  auto optimizer = std::make_unique<AdamW>(std::move(parameters), options_);
  for (size_t i = 0; i < optimizer->parameters().size(); ++i) {
    optimizer->firstMoments()[i].copy_(optimizer_.firstMoments()[i]);
    optimizer->secondMoments()[i].copy_(optimizer_.secondMoments()[i]);
  }
  optimizer->setStepCount(version_);
  server_.emplace(std::move(optimizer), communicator().worldSize(), version_, options_.averaging,
                  std::chrono::duration<double>(options_.timeoutSeconds));
  const auto weights = flat(this->parameters());
  for (int rank = 1; rank < communicator().worldSize(); ++rank) {
    services_.push_back(std::make_unique<Service>(communicator(), *server_, rank, weights, pause()));
  }
}

void Asynchronous::beginStep(int64_t step) {
  Averaging::beginStep(step);
  if (!hasBegun_) begin();
}

void Asynchronous::updateParameters() {
  const Exchange exchange(*this);
  const auto gradient = flatGradients(parameters());
  optimizer_.clearGradients();
  versionBefore_ = version_;
  last_ = server_ ? server_->push(0, gradient, version_, rate_) : pushOverNetwork(gradient);
  setValues(parameters(), last_.parameters);
  last_.parameters.reset();
  version_ = last_.version;
  ++steps_;
  stalenessSum_ += last_.staleness;
  stalenessMax_ = std::max(stalenessMax_, last_.staleness);
}

ParameterServer::Answer Asynchronous::pushOverNetwork(const at::Tensor& gradient) {
  auto request = emptyMessage(gradient);
  fill(request, {.version = version_, .rate = rate_}, gradient);
  std::vector<at::Tensor> heard{at::empty_like(request)};
  communicator().exchange(request, {0}, heard, {0});
  const Header said = headerOf(heard[0]);
  return {.parameters = payloadOf(heard[0], gradient.scalar_type()),
          .version = said.version,
          .update = said.update,
          .staleness = said.staleness,
          .withheldSeconds = said.withheldSeconds};
}

bool Asynchronous::haveOthersCome() {
  if (server_) return server_->awaitOthers(0, pause());
  auto request = emptyMessage(flat(parameters()));
  std::vector<at::Tensor> heard{at::empty_like(request)};
  setHeader(request, {.others = 1});
  communicator().exchange(request, {0}, heard, {0});
  return headerOf(heard[0]).others != 0;
}

std::chrono::duration<double> Asynchronous::pause() const {
  return std::chrono::duration<double>(options_.timeoutSeconds / kQuestionsInATimeout);
}

// Slower ranks may be many steps behind: as long as they make some, the others wait. After the barrier every rank's
// last gradient is in the parameters.
void Asynchronous::meet() {
  if (!hasBegun_) return;
  while (!haveOthersCome()) {
  }
  communicator().barrier();
  if (server_) {
    const AdamW& served = server_->optimizer();
    setValues(parameters(), flat(served.parameters()));
    for (size_t i = 0; i < parameters().size(); ++i) {
      optimizer_.firstMoments()[i].copy_(served.firstMoments()[i]);
      optimizer_.secondMoments()[i].copy_(served.secondMoments()[i]);
    }
  }
  communicator().broadcast(parameters());
  version_ = (step() + 1) * communicator().worldSize();
}

void Asynchronous::finish() {
  meet();
  services_.clear();
}

void Asynchronous::addMetrics(nlohmann::json& record) const {
  Averaging::addMetrics(record);
  record["update"] = last_.update;
  record["version"] = versionBefore_;
  record["staleness"] = last_.staleness;
  record["t_withheld_s"] = last_.withheldSeconds;
}

void Asynchronous::addSummary(nlohmann::json& record) const {
  Averaging::addSummary(record);
  record["staleness_mean"] = steps_ == 0 ? 0.0 : static_cast<double>(stalenessSum_) / static_cast<double>(steps_);
  record["staleness_max"] = stalenessMax_;
}

}  // namespace gloo_bypass::trainer
