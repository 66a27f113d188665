// The ranks' meeting place without files: a server (in the launcher, or in rank 0) and a Gloo Store that asks it.
// A few keys of a few hundred bytes, and the samples at the end of each size; nothing of it runs while time is taken.
//
// Server: one thread serves all connections, none of which it waits for. Client: any thread, one request at a time.
// Bytes on the wire: request {u8 operation, u32 key length, u32 value length or timeout in ms}, key, value; reply {u8
// found, u32 length}, value; big-endian. There is no secrecy: use it on trusted networks only, as c10d's TCPStore. But
// who finds the port without knowing what it is can neither take memory nor places: lengths are looked at before
// anything is kept, memory grows with the bytes that have come, and who has asked nothing yet is hung up on after a
// while, or when places run out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gloo/rendezvous/store.h>

#include "tools/common/free_port.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/mutex.h"

namespace gloo_bypass {

class KeyValueServer {
 public:
  // Listens from here on; port 0 takes any free one. Starts no thread, so the process may still fork. `asksWithin`: how
  // long who has connected may keep silent; a client of ours asks at once. Throws ProgramError.
  KeyValueServer(Reach reach, std::uint16_t port, std::chrono::milliseconds asksWithin = std::chrono::seconds(10));
  // Ends all connections and threads.
  ~KeyValueServer();
  KeyValueServer(const KeyValueServer&) = delete;
  KeyValueServer& operator=(const KeyValueServer&) = delete;

  std::uint16_t port() const { return port_; }
  void start();
  // Waits until every client has hung up, so that the last answers reach them. False: not within `timeout`.
  bool waitForClients(std::chrono::milliseconds timeout);
  // For the process that hosts the server; does not wait.
  std::optional<std::vector<char>> value(const std::string& key) const;

 private:
  class Connection;
  using Value = std::shared_ptr<const std::vector<char>>;

  void serve();
  bool acceptAll();
  bool makeRoom();
  void answer(Connection& connection);
  Value find(const std::string& key) const;
  bool keep(const std::string& key, std::vector<char> value);

  const std::chrono::milliseconds asksWithin_;
  FileDescriptor listener_, stop_;
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;  // the thread's, in the order of their coming
  mutable Mutex mutex_;
  Condition changed_;
  std::size_t clients_ GLOO_BYPASS_GUARDED_BY(mutex_) = 0;  // connections that have asked something
  std::map<std::string, Value> data_ GLOO_BYPASS_GUARDED_BY(mutex_);
  std::size_t storedBytes_ GLOO_BYPASS_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

class KeyValueClient : public ::gloo::rendezvous::Store {
 public:
  // Tries to connect until `timeout`, since rank 0 may start last. Throws ProgramError.
  KeyValueClient(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::vector<char>& data) override;
  // Waits as long as the constructor's timeout says. Throws ::gloo::IoException.
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  bool isAnswered();
  // Waits for what is `left` of `timeout`.
  std::vector<char> fetch(const std::string& key, std::chrono::milliseconds left, std::chrono::milliseconds timeout);
  std::optional<std::vector<char>> request(std::uint8_t operation, const std::string& key,
                                           const std::vector<char>& value, std::chrono::milliseconds timeout);

  Mutex mutex_;
  std::chrono::milliseconds timeout_;
  std::string peer_;
  FileDescriptor socket_ GLOO_BYPASS_GUARDED_BY(mutex_);
};

}  // namespace gloo_bypass
