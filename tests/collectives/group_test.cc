// Groups of real processes on this host.
#include "collectives/group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/collectives/folder_rendezvous.h"
#include "tests/support/temporary_folder.h"
#include "transport/process/process_transport.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// What a rank's process returns; its faults go to stderr.
using Body = std::function<int(int rank)>;

class Processes {
 public:
  Processes(int ranks, const Body& body) {
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(body(rank));
      children_.push_back(child);
    }
  }
  ~Processes() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (children_[rank] > 0) {
        ::kill(children_[rank], SIGKILL);
        (void)status(static_cast<int>(rank));
      }
    }
  }
  void kill(int rank) { ::kill(children_[static_cast<std::size_t>(rank)], SIGKILL); }
  // Waits for it: what it returned; -1: it was killed.
  int status(int rank) {
    int status = 0;
    ::waitpid(std::exchange(children_[static_cast<std::size_t>(rank)], -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  std::vector<pid_t> children_;
};

Result<std::unique_ptr<Group>> makeGroup(const std::string& folder, int rank, int size, std::string transport = "",
                                         std::string host = "") {
  return Group::make({.rank = rank,
                      .size = size,
                      .timeout = 20s,
                      .transport = std::move(transport),
                      .interface = "",
                      .host = std::move(host)},
                     std::make_shared<FolderRendezvous>(folder));
}

int complain(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return 1;
}

struct Sum {
  std::vector<float> values;
  ConstBlock input{};
  Block output{};
  Call call(std::size_t count, float value) {
    values.assign(count, value);
    input = {reinterpret_cast<const std::byte*>(values.data()), count};
    output = {reinterpret_cast<std::byte*>(values.data()), count};
    return {.kind = Kind::kAllReduce, .type = ElementType::kFloat32, .inputs = {&input, 1}, .outputs = {&output, 1}};
  }
};

// What the rank's process returns: 0 if the group's sums of short and long vectors are right.
int sumsAllSizes(Group& group, int rank, int ranks) {
  for (const std::size_t count : {1, 1000, 500'000}) {
    Sum sum;
    const Status status = group.run(sum.call(count, static_cast<float>(rank + 1)), 0ms);
    if (!status) return complain(status.error().message);
    for (const float value : sum.values) {
      if (value != static_cast<float>(ranks * (ranks + 1) / 2)) return complain("a wrong sum");
    }
  }
  return 0;
}

TEST(Group_Make, ProcessesOfOneHost_SumThroughMemory) {
  for (const int ranks : {1, 2, 4}) {
    const TemporaryFolder folder;
    Processes processes(ranks, [&](int rank) {
      auto group = makeGroup(folder.path, rank, ranks);
      if (!group) return complain(group.error().message);
      if (group.value()->describe().find("flat shared memory") == std::string::npos) return complain("another link");
      if (const int fault = sumsAllSizes(*group.value(), rank, ranks); fault != 0) return fault;
      return 0;
    });
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.status(rank), 0) << ranks;
  }
}

TEST(Group_Make, SeveralRanksOnSomeHosts_SumThroughMemoryAndNetwork) {
  for (const std::string hosts : {"aabb", "abab", "aab"}) {
    const TemporaryFolder folder;
    const int ranks = static_cast<int>(hosts.size());
    Processes processes(ranks, [&](int rank) {
      auto group = makeGroup(folder.path, rank, ranks, "", hosts.substr(static_cast<std::size_t>(rank), 1));
      if (!group) return complain(group.error().message);
      if (group.value()->describe().find("2 hosts") == std::string::npos) return complain(group.value()->describe());
      if (const int fault = sumsAllSizes(*group.value(), rank, ranks); fault != 0) return fault;
      const auto counters = nlohmann::json::parse(ProcessTransport::instance().countersJson());
      const char host = hosts[static_cast<std::size_t>(rank)];
      const bool alone = std::count(hosts.begin(), hosts.end(), host) == 1;
      const bool shared = counters["MEMORY"]["payload_bytes_sent"] >= 2'000'000;
      if (!alone && !shared) return complain("too little went through memory");
      const bool leads = hosts.find(host) == static_cast<std::size_t>(rank);
      const bool sent = counters["DPDK"]["payload_bytes_sent"] > 500'000;
      return !leads || sent ? 0 : complain("too little went over the network");
    });
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.status(rank), 0) << hosts;
  }
}

TEST(Group_Make, ATransportIsNamed_ItCarriesAllBytes) {
  const TemporaryFolder folder;
  Processes processes(4, [&](int rank) {
    auto group = makeGroup(folder.path, rank, 4, "UDP", rank < 2 ? "a" : "b");
    if (!group) return complain(group.error().message);
    return group.value()->carriers() == std::vector<std::string>{"UDP"} ? 0 : complain(group.value()->describe());
  });
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(processes.status(rank), 0);
}

TEST(Group_Make, TransportsDiffer_BothAreNamed) {
  const TemporaryFolder folder;
  Processes processes(2, [&](int rank) {
    const auto group = makeGroup(folder.path, rank, 2, rank == 0 ? "DPDK" : "UDP");
    if (group) return complain("made");
    const std::string& text = group.error().message;
    const bool named =
        text.find("DPDK with memory links") != std::string::npos && text.find("UDP") != std::string::npos;
    return named && group.error().code == ErrorCode::kConfiguration ? 0 : complain(text);
  });
  EXPECT_EQ(processes.status(0), 0);
  EXPECT_EQ(processes.status(1), 0);
}

ChoiceTable by(Algorithm algorithm) {
  ChoiceTable choices;
  choices.prefer(algorithm);
  return choices;
}

// Ranks whose algorithms differ fail in their first operation.
TEST(Group_Choices, OfRankZero_HoldForRanksWithoutAny) {
  const TemporaryFolder folder;
  Processes processes(3, [&](int rank) {
    GroupOptions options{.rank = rank, .size = 3, .timeout = 20s, .transport = "UDP", .interface = ""};
    if (rank == 0) options.choices = by(Algorithm::kDoubleTree);
    if (rank == 1) options.choices = by(Algorithm::kDoubleTree);
    auto group = Group::make(options, std::make_shared<FolderRendezvous>(folder.path));
    if (!group) return complain(group.error().message);
    Sum sum;
    const Status status = group.value()->run(sum.call(1000, 1), 0ms);
    if (!status) return complain(status.error().message);
    return sum.values[999] == 3 ? 0 : complain("a wrong sum");
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.status(rank), 0);
}

TEST(Group_Choices, Differ_AllRanksAreRefused) {
  const TemporaryFolder folder;
  Processes processes(3, [&](int rank) {
    GroupOptions options{.rank = rank, .size = 3, .timeout = 20s, .transport = "UDP", .interface = ""};
    if (rank == 2) options.choices = by(Algorithm::kRing);
    const auto group = Group::make(options, std::make_shared<FolderRendezvous>(folder.path));
    if (group) return complain("made");
    const std::string& text = group.error().message;
    return text.find("rank 2 chooses other algorithms than rank 0") != std::string::npos ? 0 : complain(text);
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.status(rank), 0);
}

// Random numbers, so that another order of additions gives other bits.
std::vector<std::byte> randomBytes(ElementType type, std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<std::byte> bytes(count * sizeOf(type));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = distribution(random);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    // The upper half of a float is a bfloat16, and as a float16 it is some finite number too.
    if (type == ElementType::kFloat32)
      std::memcpy(bytes.data() + 4 * i, &bits, 4);
    else
      std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const std::byte*>(&bits) + 2, 2);
  }
  return bytes;
}

TEST(Group_SumsInOrder, OverMemoryAndOverTheNetwork_HaveTheSameBits) {
  constexpr int kSize = 5;
  const TemporaryFolder memoryFolder, networkFolder;
  Processes processes(kSize, [&](int rank) {
    ChoiceTable inOrder;
    inOrder.keepOrderOfRanks();
    GroupOptions options{.rank = rank, .size = kSize, .timeout = 20s, .transport = "DPDK", .interface = ""};
    options.choices = inOrder;
    auto memory = Group::make(options, std::make_shared<FolderRendezvous>(memoryFolder.path));
    options.transport = "UDP";
    auto network = Group::make(options, std::make_shared<FolderRendezvous>(networkFolder.path));
    if (!memory || !network) return complain("no group");
    for (const ElementType type : {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
      for (const std::size_t count : {1, 700, 40'000, 600'000}) {
        const std::vector<std::byte> given = randomBytes(type, count, rank);
        std::vector<std::byte> results[2] = {given, given};
        for (int i = 0; i < 2; ++i) {
          const ConstBlock input{results[i].data(), count};
          const Block output{results[i].data(), count};
          const Call call{.kind = Kind::kAllReduce, .type = type, .inputs = {&input, 1}, .outputs = {&output, 1}};
          const Status status = (i == 0 ? memory : network).value()->run(call, 0ms);
          if (!status) return complain(status.error().message);
        }
        if (results[0] != results[1]) return complain(fmt::format("{} of {} differ", count, nameOf(type)));
      }
    }
    return 0;
  });
  for (int rank = 0; rank < kSize; ++rank) EXPECT_EQ(processes.status(rank), 0);
}

TEST(Group_Make, ARankDoesNotCome_ItIsNamed) {
  const TemporaryFolder folder;
  const auto group = Group::make({.rank = 0, .size = 2, .timeout = 50ms, .transport = "", .interface = ""},
                                 std::make_shared<FolderRendezvous>(folder.path));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kTimedOut);
  EXPECT_THAT(group.error().message, HasSubstr("rank 1 did not come"));
}

TEST(Group_Make, APeerPublishesRubbish_IsAnError) {
  const std::string tooLong(1 << 20, ' ');
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"),
                                  std::string("{\"protocol\": \"x\"}"), std::string("\xff\xfe"), tooLong}) {
    const TemporaryFolder folder;
    FolderRendezvous store(folder.path);
    ASSERT_TRUE(store.set("gloo_bypass/rank/1", std::as_bytes(std::span(text))));
    const auto group = makeGroup(folder.path, 0, 2);
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, ErrorCode::kPeerViolatedProtocol) << text.substr(0, 50);
  }
}

std::size_t threads() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// As a mesh's dimension of one is: there may be many.
TEST(Group_OfOneRank, CostsNoThreads_AndHasNoPeers) {
  const TemporaryFolder folder, another;
  Processes processes(1, [&](int) {
    const auto first = makeGroup(folder.path, 0, 1);  // makes what the process has only once
    const std::size_t before = threads();
    const auto group = makeGroup(another.path, 0, 1);
    if (!first || !group) return complain((first ? group : first).error().message);
    if (threads() != before) return complain("it has started a thread");
    std::vector<float> values(1 << 20, 1.5f), results(values.size());
    const ConstBlock input{reinterpret_cast<const std::byte*>(values.data()), values.size()};
    const Block output{reinterpret_cast<std::byte*>(results.data()), results.size()};
    const Call call{
        .kind = Kind::kAllReduce, .type = ElementType::kFloat32, .inputs = {&input, 1}, .outputs = {&output, 1}};
    const Status status = group.value()->run(call, 0ms);
    if (!status) return complain(status.error().message);
    if (results != values) return complain("another sum");
    Status received;
    group.value()->receive({.peer = Message::kAnyPeer}, [&](Status of, int) { received = std::move(of); });
    return !received && received.error().code == ErrorCode::kInvalidArgument ? 0 : complain("it waits for a peer");
  });
  EXPECT_EQ(processes.status(0), 0);
}

// Versions differ where their fields do.
TEST(Group_Make, APeerOfAnotherVersion_BothVersionsAreNamed) {
  const TemporaryFolder folder;
  const std::string text = "{\"protocol\": 99, \"news\": true}";
  ASSERT_TRUE(FolderRendezvous(folder.path).set("gloo_bypass/rank/1", std::as_bytes(std::span(text))));
  const auto group = makeGroup(folder.path, 0, 2);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kConfiguration);
  EXPECT_THAT(group.error().message, HasSubstr("rank 1 of version 99: use one gloo_bypass"));
}

// Starts all of them before it waits for the first. Their first error.
Status sumAll(Group& group, std::vector<Sum>& sums, float value) {
  std::vector<std::promise<Status>> ended(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    group.start(sums[i].call(i % 2 == 0 ? 10 : 200'000, value), 60s,
                [&ended, i](Status status) { ended[i].set_value(std::move(status)); });
  }
  Status first;
  for (auto& one : ended) {
    Status status = one.get_future().get();
    if (first) first = std::move(status);
  }
  return first;
}

// Kills one rank at a random moment of a stream of operations: every survivor names it, soon, and no sum is wrong.
// `hosts` has one letter for each rank; `atOnce`: how many operations are under way.
void killAtRandom(const std::string& hosts, int byDefault, std::size_t atOnce = 1) {
  const char* wanted = std::getenv("GLOO_BYPASS_TEST_KILLS");
  const int kills = wanted == nullptr ? byDefault : std::atoi(wanted);
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const int ranks = static_cast<int>(hosts.size());
  for (int kill = 0; kill < kills; ++kill) {
    const TemporaryFolder folder;
    const int victim = static_cast<int>(random() % hosts.size());
    const std::string name = "rank " + std::to_string(victim);
    Processes processes(ranks, [&](int rank) {
      auto group = makeGroup(folder.path, rank, ranks, "", hosts.substr(static_cast<std::size_t>(rank), 1));
      if (!group) return group.error().message.find("ended") != std::string::npos ? 0 : complain(group.error().message);
      std::ofstream(folder.path + "/made" + std::to_string(rank)).put('1');
      for (unsigned i = 0;; ++i) {
        const auto value = static_cast<float>(i % 100);
        std::vector<Sum> sums(atOnce);
        const Status status = atOnce > 1 ? sumAll(*group.value(), sums, value)
                                         : group.value()->run(sums[0].call(i % 2 == 0 ? 10 : 200'000, value), 60s);
        if (!status)
          return status.error().message.find(name) != std::string::npos ? 0 : complain(status.error().message);
        for (const Sum& sum : sums) {
          if (sum.values.front() != static_cast<float>(ranks) * value || sum.values.back() != sum.values.front())
            return complain("a wrong sum");
        }
      }
    });
    FolderRendezvous store(folder.path);
    for (int rank = 0; rank < ranks; ++rank) ASSERT_TRUE(store.get("made" + std::to_string(rank), 20s));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // a random moment of the stream
    processes.kill(victim);
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(processes.status(rank), 0) << "rank " << rank << ", victim " << victim << ", kill " << kill;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  }
}

TEST(Group_ARankIsKilled, OnOneHost_SurvivorsNameItAndNoSumIsWrong) { killAtRandom("aaa", 25); }
TEST(Group_ARankIsKilled, OnTwoHosts_SurvivorsNameItAndNoSumIsWrong) { killAtRandom("aabb", 15); }
TEST(Group_ARankIsKilled, OnHostsOfUnequalSize_SurvivorsNameItAndNoSumIsWrong) {
  killAtRandom("aaab", 5);
  killAtRandom("aba", 5);
}
TEST(Group_ARankIsKilled, WithOperationsAhead_SurvivorsNameItAndNoSumIsWrong) { killAtRandom("abc", 20, 5); }

// A child that a rank forks, and that ends before it or after it, is no rank: neither its end nor its exit handlers are
// taken for the rank's.
TEST(Group_Fork, AChildOfARank_DoesNotTouchTheGroup) {
  const TemporaryFolder folder;
  Processes processes(2, [&](int rank) {
    auto group = makeGroup(folder.path, rank, 2);
    if (!group) return complain(group.error().message);
    group.value()->start(Call{}, 0ms, [](const Status&) {});  // the group has a thread now
    if (const Status status = group.value()->run(Call{}, 0ms); !status) return complain(status.error().message);
    const pid_t child = ::fork();
    if (child == 0) {
      const Status status = group.value()->run(Call{}, 0ms);
      group.value().reset();
      ::_exit(!status && status.error().message.find("forked") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return complain("the child could use the group");
    const Status last = group.value()->run(Call{}, 0ms);
    return last ? 0 : complain(last.error().message);
  });
  EXPECT_EQ(processes.status(0), 0);
  EXPECT_EQ(processes.status(1), 0);
}

TEST(Group_Start, OperationsStartedAndRun_KeepTheirOrder) {
  const TemporaryFolder folder;
  Processes processes(2, [&](int rank) {
    auto group = makeGroup(folder.path, rank, 2);
    if (!group) return complain(group.error().message);
    std::vector<Sum> sums(50);
    std::vector<int> order;  // written on the group's thread, read after the last has ended
    for (std::size_t i = 0; i < sums.size(); ++i) {
      group.value()->start(sums[i].call(i * 100, 1.0f), 0ms,
                           [&order, i](const Status& status) { order.push_back(status ? static_cast<int>(i) : -1); });
    }
    Sum last;
    if (const Status status = group.value()->run(last.call(1, 2.0f), 0ms); !status)
      return complain(status.error().message);
    group.value().reset();
    if (order.size() != sums.size()) return complain("some had not ended before a later one");
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i] != static_cast<int>(i)) return complain("another order");
    }
    return last.values[0] == 4.0f ? 0 : complain("a wrong sum");
  });
  EXPECT_EQ(processes.status(0), 0);
  EXPECT_EQ(processes.status(1), 0);
}

// Sends or receives, and waits for it. The peer; nullopt: an error, which goes to stderr.
std::optional<int> finish(Group& group, bool sends, const Message& message) {
  bool done = false;  // changed and read with exclusive access
  Status outcome;
  int who = Message::kAnyPeer;
  const auto report = [&](Status status, int peer) {
    outcome = std::move(status);
    who = peer;
    done = true;
  };
  sends ? group.send(message, report) : group.receive(message, report);
  if (!group.wait([&] { return done; }, monotonicNow() + 20s)) {
    complain("a message did not come");
    std::abort();  // `done` would dangle
  }
  if (!outcome) complain(outcome.error().message);
  return outcome ? std::optional(who) : std::nullopt;
}

// What has started goes on while its rank waits for something else, which its peers may do only after it.
TEST(Group_Start, OnSeveralHosts_GoesOnWhileItsRankWaitsForAMessage) {
  const std::string hosts = "aab";
  const TemporaryFolder folder;
  Processes processes(3, [&](int rank) {
    auto made = makeGroup(folder.path, rank, 3, "DPDK", hosts.substr(static_cast<std::size_t>(rank), 1));
    if (!made) return complain(made.error().message);
    Group& group = *made.value();
    std::byte byte{};
    for (int round = 0; round < 3; ++round) {  // the first start() of a group starts a thread
      Sum sum;
      std::atomic<bool> done{false};
      std::string why;
      group.start(sum.call(1, 1), 0ms, [&](const Status& status) {
        if (!status) why = status.error().message;
        done = true;
      });
      if (rank == 0 && !finish(group, false, {.peer = 2, .tag = 1, .data = &byte, .bytes = 1})) return 1;
      group.assist([&] { return done.load(); });
      while (!done) ::usleep(1000);
      if (!why.empty()) return complain(why);
      if (sum.values[0] != 3) return complain("a wrong sum");
      if (rank == 2 && !finish(group, true, {.peer = 0, .tag = 1, .data = &byte, .bytes = 1})) return 1;
    }
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.status(rank), 0);
}

struct Ending {
  const char* name;
  bool aborts;
  const char* text;
};
void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.name; }
class Group_MessagesAfter : public ::testing::TestWithParam<Ending> {};

TEST_P(Group_MessagesAfter, ARanksEnd_FailAndNameItSoon) {
  const TemporaryFolder folder;
  Processes processes(3, [&](int rank) {
    auto made = makeGroup(folder.path, rank, 3, "DPDK");
    if (!made) return complain(made.error().message);
    Sum sum;
    if (const Status status = made.value()->run(sum.call(1, 1), 0ms); !status) return complain(status.error().message);
    FolderRendezvous store(folder.path);
    const auto reach = [&](const std::string& what) { return store.set(what, {}).ok(); };
    if (rank == 2) {
      GetParam().aborts ? made.value()->abort() : made.value().reset();
      if (!reach("left")) return complain("no store");
      return store.get("told0", 20s) && store.get("told1", 20s) ? 0 : complain("the others have no error");
    }
    if (!store.get("left", 20s)) return complain("rank 2 does not leave");
    const TimePoint began = monotonicNow();
    std::atomic<bool> done{false};
    std::string why;
    const auto report = [&](const Status& status, int) {
      if (!status) why = status.error().message;
      done = true;
    };
    std::byte byte{};
    const Message message{.peer = 1 - rank, .tag = 1, .data = &byte, .bytes = 1};
    rank == 0 ? made.value()->send(message, report) : made.value()->receive(message, report);
    if (!made.value()->wait([&] { return done.load(); }, monotonicNow() + 20s)) return complain("no end");
    if (monotonicNow() - began > 10s) return complain("it took long");
    // Neither leaves before the other has its error.
    if (!reach("told" + std::to_string(rank)) || !store.get("told" + std::to_string(1 - rank), 20s)) return 1;
    return why.find(GetParam().text) != std::string::npos ? 0 : complain(why);
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.status(rank), 0);
}
INSTANTIATE_TEST_SUITE_P(Endings, Group_MessagesAfter,
                         ::testing::Values(Ending{"Leaving", false, "rank 2 has left this group"},
                                           Ending{"Abort", true, "rank 2 has aborted this group"}),
                         [](const auto& info) { return info.param.name; });

// A rank's operation fails while another waits for a message, which is none of that operation's peers' business.
TEST(Group_Messages, UnderWayWhenAnOperationFails_EndWithItsError) {
  const TemporaryFolder folder;
  Processes processes(2, [&](int rank) {
    auto made = makeGroup(folder.path, rank, 2, "DPDK");
    if (!made) return complain(made.error().message);
    std::byte byte{};
    const Message message{.peer = 1 - rank, .tag = 1, .data = &byte, .bytes = 1};
    if (!finish(*made.value(), rank == 0, message)) return 1;  // channels are there
    if (rank == 0) {
      if (made.value()->run(Call{}, 200ms)) return complain("rank 1 came");
      FolderRendezvous store(folder.path);
      return store.get("told", 20s) ? 0 : complain("rank 1 has no error");  // this process goes on
    }
    std::atomic<bool> done{false};
    std::string why;
    made.value()->receive(message, [&](const Status& status, int) {
      if (!status) why = status.error().message;
      done = true;
    });
    if (!made.value()->wait([&] { return done.load(); }, monotonicNow() + 10s)) return complain("no end");
    FolderRendezvous store(folder.path);
    if (!store.set("told", {}).ok()) return complain("no store");
    return why.find("rank 0 has waited for rank 1") != std::string::npos ? 0 : complain(why);
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(processes.status(rank), 0);
}

class Group_MessagesOver : public ::testing::TestWithParam<const char*> {};

TEST_P(Group_MessagesOver, SendReceiveAndReceiveFromAny_ArriveWithTheirTagsAndSenders) {
  const TemporaryFolder folder;
  Processes processes(3, [&](int rank) {
    auto made = makeGroup(folder.path, rank, 3, GetParam());
    if (!made) return complain(made.error().message);
    Group& group = *made.value();
    std::vector<std::uint64_t> values(20'000, static_cast<std::uint64_t>(rank));
    const auto message = [&](int peer, std::uint32_t tag) {
      return Message{.peer = peer,
                     .tag = tag,
                     .data = reinterpret_cast<std::byte*>(values.data()),
                     .bytes = values.size() * sizeof(values[0])};
    };
    if (rank != 0) {
      if (!finish(group, true, message(0, 7))) return 1;
      if (!finish(group, true, message(0, static_cast<std::uint32_t>(rank)))) return 1;
    } else {
      int from = 0;
      for (int i = 0; i < 2; ++i) {
        const auto peer = finish(group, false, message(Message::kAnyPeer, 7));
        if (!peer || values.back() != static_cast<std::uint64_t>(*peer)) return complain("another sender");
        from += *peer;
      }
      if (from != 3) return complain("one rank came twice");
      for (const int peer : {2, 1}) {
        if (!finish(group, false, message(peer, static_cast<std::uint32_t>(peer)))) return 1;
        if (values.front() != static_cast<std::uint64_t>(peer)) return complain("another message");
      }
    }
    const Status last = group.run(Call{}, 0ms);
    return last ? 0 : complain(last.error().message);
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.status(rank), 0) << rank;
}

TEST_P(Group_MessagesOver, APeerOutsideTheGroup_IsRefused) {
  const TemporaryFolder folder;
  auto group = makeGroup(folder.path, 0, 1, GetParam());
  ASSERT_TRUE(group) << group.error().message;
  for (const int peer : {0, 1, -1, -2}) {
    Status status;
    group.value()->send({.peer = peer, .tag = 0, .data = nullptr, .bytes = 0},
                        [&](Status outcome, int) { status = std::move(outcome); });
    ASSERT_FALSE(status) << peer;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << peer;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Group_MessagesOver, ::testing::Values("DPDK", "UDP"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace gloo_bypass::collectives
