// Ranks that meet incompatible ones. DDP_TRAIN names the program.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plugin/compatibility/torch/tcp_store.h"
#include "tests/support/gloo_notes.h"
#include "tests/trainer/tiny_training.h"
#include "tools/common/free_port.h"

namespace gloo_bypass::trainer::testing {
namespace {

std::vector<uint8_t> bytesOf(const std::string& text) { return {text.begin(), text.end()}; }

// Rank 1's message in a run with a store that holds these entries.
std::string saidWith(const std::map<std::string, std::string>& entries) {
  const uint16_t port = freePort();
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.waitWorkers = false;
  torch_version::serveWithoutLibuv(options);
  c10d::TCPStore store("127.0.0.1", options);
  for (const auto& [key, value] : entries) store.set(key, bytesOf(value));
  const auto finished = train({"--steps", "1"}, rankOf(1, 2, port));
  EXPECT_GT(finished.shellStatus(), 0);
  return test::withoutGloosNotes(finished.err);
}

void expectOnePrintableLine(const std::string& said) {
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(std::all_of(said.begin(), said.end(), [](char c) { return (c >= ' ' && c < 0x7f) || c == '\n'; }))
      << said;
}

// c10d adds its own prefix to keys in its stores.
std::map<std::string, std::string> underEachName(const std::string& key, const std::string& value) {
  return {{key, value}, {"/" + key, value}};
}

TEST(Rendezvous, FaultOfAPeer_IsOneLineWithoutControlCharacters) {
  const std::string said =
      saidWith(underEachName("ddp_train/fault", "\x1b[2J\x1b]0;owned\x07 \xff\r\nddp_train: rank 0: all is well"));
  expectOnePrintableLine(said);
  EXPECT_NE(said.find("\\x1b[2J\\x1b]0;owned\\x07 \\xff  ddp_train: rank 0: all is well"), std::string::npos) << said;
}

TEST(Rendezvous, OptionsOfAPeer_AreOneLineWithoutControlCharacters) {
  const std::string said = saidWith(underEachName("ddp_train/config", "{\"model\": \"\x9b 31m\", \"\\u001b[2J\": 1}"));
  expectOnePrintableLine(said);
  EXPECT_NE(said.find("rank 1 does not fit the run"), std::string::npos) << said;
}

TEST(Rendezvous, OptionsOfAPeerThatAreNone_AreRefused) {
  for (const std::string& text : {std::string(8 << 20, '['), std::string("no JSON")}) {
    const std::string said = saidWith(underEachName("ddp_train/config", text));
    expectOnePrintableLine(said);
  }
}

TEST(Rendezvous, Rank0IsStoppedWhileRanksMeet_TheWaitEnds) {
  const uint16_t port = freePort();
  const auto start = [&](int rank) {
    return startTraining({"--steps", "1", "--rendezvous-timeout", rank == 0 ? "90" : "5"}, rankOf(rank, 3, port));
  };
  auto rank0 = start(0);
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = kLimit;
  c10d::TCPStore store("127.0.0.1", options);  // once rank 0 serves it
  auto rank1 = start(1);                       // and rank 2 does not come
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (store.add("ddp_train/arrived", 0) < 2 && std::chrono::steady_clock::now() < end) ::usleep(1000);
  ASSERT_EQ(::kill(rank0.pid(), SIGSTOP), 0);
  const auto finished = rank1.finish(kLimit);
  ::kill(rank0.pid(), SIGKILL);
  ::kill(rank0.pid(), SIGCONT);
  EXPECT_EQ(finished.shellStatus(), 1) << finished.err;
  const std::string said = test::withoutGloosNotes(finished.err);
  EXPECT_NE(said.find("rank 1, meeting the others at MASTER_ADDR=127.0.0.1"), std::string::npos) << said;
  EXPECT_NE(said.find("no answer within 11 s"), std::string::npos) << said;
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
