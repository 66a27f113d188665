// Writes frames to a pcapng file without ever keeping waiting who hands them over.
//
//   record() --copies--> chunk being filled --full, or flush()--> chunks to be written --a thread of this object's--> file
//
// Bounds: kChunks chunks of kChunkBytes, taken as they are needed. Where all of them wait for the disk, frames are lost: counted for each
// interface, told in the file's statistics and by counters(). A file that cannot be written any further (a full disk) ends the recording:
// it is cut after the last whole chunk, so that it can be read; everything later counts as lost.
//
// Threads: record(), flush() and finish() by one owner; counters() by the owner too. The writing thread takes no signals.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tools/capture/pcapng_blocks.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass::capture {

struct RecorderCounters {
  std::uint64_t frames = 0, lost = 0;
  std::uint64_t fileBytes = 0;
  std::string failure;  // empty: none; else why recording has ended
};

class FrameRecorder {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  static constexpr std::uint64_t kChunks = 64;

  struct Interface {
    std::string name, description;
  };

  // `path` must not exist. The error is one line.
  static Result<std::unique_ptr<FrameRecorder>> create(const std::string& path, const std::vector<Interface>& interfaces,
                                                       std::uint32_t snapLength, const std::string& application);
  // Writes to what is open already; `name` is for messages.
  static Result<std::unique_ptr<FrameRecorder>> create(FileDescriptor file, const std::string& name,
                                                       const std::vector<Interface>& interfaces, std::uint32_t snapLength,
                                                       const std::string& application);
  // Writes what is left; without finish() the statistics are missing.
  ~FrameRecorder();
  FrameRecorder(const FrameRecorder&) = delete;
  FrameRecorder& operator=(const FrameRecorder&) = delete;

  // Keeps the frame's beginning, at most the snap length. `frame` is copied.
  void record(std::size_t interface, UnixTime time, std::span<const std::byte> frame);
  // What was recorded so far is on its way to the file.
  void flush();
  // Writes what is left and the statistics, and closes the file. Once. The error says what the file lacks.
  Status finish(UnixTime now);

  RecorderCounters counters() const;

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t used = 0;
  };
  struct InterfaceCounters {
    std::uint64_t frames = 0, lost = 0;
  };

  FrameRecorder(std::string path, FileDescriptor file, std::size_t interfaces, std::uint32_t snapLength)
      : path_(std::move(path)), file_(std::move(file)), snapLength_(snapLength), interfaces_(interfaces) {}
  void start();
  // A chunk with room for so many bytes; nullptr: all of them wait for the disk.
  Chunk* roomFor(std::size_t bytes);
  void writeChunks();
  bool writeWhole(std::span<const std::byte> bytes);
  void stop();

  const std::string path_;
  FileDescriptor file_;
  const std::uint32_t snapLength_;
  std::vector<InterfaceCounters> interfaces_;
  std::array<Chunk, kChunks> chunks_;
  // Chunk n is chunks_[n % kChunks]: those before written_ are in the file, those before filled_ belong to the writer, filled_ is being
  // filled by the owner.
  std::atomic<std::uint64_t> filled_{0}, written_{0};
  std::atomic<std::uint64_t> fileBytes_{0};
  std::atomic<bool> stopping_{false}, failed_{false};
  std::string failure_;  // set before failed_
  std::thread writer_;
};

}  // namespace gloo_bypass::capture
