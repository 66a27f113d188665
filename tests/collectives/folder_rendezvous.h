// A rendezvous of processes through files of a folder, for tests.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "collectives/rendezvous.h"

namespace gloo_bypass::collectives {

class FolderRendezvous final : public Rendezvous {
 public:
  explicit FolderRendezvous(std::string folder) : folder_(std::move(folder)) {}

  Status set(const std::string& key, std::span<const std::byte> value) override {
    const std::string path = pathOf(key), temporary = path + "." + std::to_string(::getpid());
    std::ofstream(temporary, std::ios::binary)
        .write(reinterpret_cast<const char*>(value.data()), static_cast<std::streamsize>(value.size()));
    std::filesystem::rename(temporary, path);
    return {};
  }
  Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(pathOf(key))) {
      if (std::chrono::steady_clock::now() >= end) {
        return Error{ErrorScope::kSession, ErrorCode::kTimedOut, "no " + key + " in the folder"};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(pathOf(key), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  Result<bool> has(const std::string& key) override { return std::filesystem::exists(pathOf(key)); }

 private:
  std::string pathOf(std::string key) const {
    for (char& letter : key) letter = letter == '/' ? '-' : letter;
    return folder_ + "/" + key;
  }
  const std::string folder_;
};

}  // namespace gloo_bypass::collectives
