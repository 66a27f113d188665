// Writes frames to a pcapng file without ever blocking the caller.
//
//   record() --copies--> chunk being filled --a thread of this object's, every kWriterNap--> file
//
// Bounds: kChunks chunks of kChunkBytes, allocated as needed. If all of them wait for the disk, frames are dropped and
// counted for each interface, in the file's statistics and in counters(). Recording ends when the file cannot grow (a
// full disk) or reaches its maximum length. It ends after a whole block, so that the file can be read; all later frames
// count as dropped.
//
// Threads: one owner calls record(), finish() and counters(). The writing thread takes no signals.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/capture/pcapng_blocks.h"

namespace gloo_bypass::capture {

// The offset to add to a time of the transports' clock to get Unix time; that clock reads `now`.
Duration unixClockAhead(TimePoint now);

struct RecorderCounters {
  std::uint64_t frames = 0, lost = 0;
  std::uint64_t bytes = 0;      // of the whole frames, before cutting
  std::uint64_t fileBytes = 0;  // written so far
  std::string failure;          // empty: no failure; else why recording has ended
};

struct RecorderOptions {
  struct Interface {
    std::string name, description;
  };
  std::vector<Interface> interfaces;
  std::uint32_t snapLength = 0;    // bytes kept of a frame; 0: all
  std::uint64_t maxFileBytes = 0;  // 0: no bound
  std::string application;         // the program that the file names as its writer
};

class FrameRecorder {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  static constexpr std::uint64_t kChunks = 64;

  // `path` must not exist. The error is one line.
  static Result<std::unique_ptr<FrameRecorder>> create(const std::string& path, const RecorderOptions& options);
  // Writes to an open file; `name` is for messages.
  static Result<std::unique_ptr<FrameRecorder>> create(FileDescriptor file, const std::string& name,
                                                       const RecorderOptions& options);
  // Writes what is left. The statistics are missing unless finish() was called.
  ~FrameRecorder();
  FrameRecorder(const FrameRecorder&) = delete;
  FrameRecorder& operator=(const FrameRecorder&) = delete;

  // Copies the beginning of the frame, at most the snap length. `pieces` hold the frame in order; `wholeBytes` is its
  // length if they do not hold all of it.
  void record(std::size_t interface, UnixTime time, FrameDirection direction,
              std::span<const std::span<const std::byte>> pieces, std::size_t wholeBytes = 0);
  void record(std::size_t interface, UnixTime time, std::span<const std::byte> frame) {
    record(interface, time, FrameDirection::kUnknown, std::span(&frame, 1));
  }
  // Writes what is left and the statistics, then closes the file. Call once. The error says what the file lacks.
  Status finish(UnixTime now);

  RecorderCounters counters() const;
  // Whether recording has ended early; cheap.
  bool ended() const { return tooLong_ || failed_.load(std::memory_order_acquire); }

 private:
  // The owner appends whole blocks and publishes them through `used`.
  struct Chunk {
    std::unique_ptr<std::byte[]> bytes;
    std::atomic<std::size_t> used{0};
    std::size_t written = 0;  // by the writer
  };
  struct InterfaceCounters {
    std::uint64_t frames = 0, lost = 0;
  };

  FrameRecorder(std::string path, FileDescriptor file, const RecorderOptions& options)
      : path_(std::move(path)), file_(std::move(file)), options_(options), interfaces_(options.interfaces.size()) {}
  void start();
  // A chunk with room for `bytes`; nullptr: all wait for the disk, or recording has ended.
  Chunk* roomFor(std::size_t bytes);
  void writeChunks();
  void writeOut(Chunk& chunk);
  bool writeWhole(std::span<const std::byte> bytes);
  void stop();

  const std::string path_;
  FileDescriptor file_;
  const RecorderOptions options_;
  std::vector<InterfaceCounters> interfaces_;
  std::uint64_t bytes_ = 0;     // of recorded frames
  std::uint64_t recorded_ = 0;  // length of the file once all is written
  bool tooLong_ = false;
  std::array<Chunk, kChunks> chunks_;
  // Chunk n is chunks_[n % kChunks]: those before written_ are in the file, those before filled_ are full, and filled_
  // is being filled.
  std::atomic<std::uint64_t> filled_{0}, written_{0};
  std::atomic<std::uint64_t> fileBytes_{0};
  std::atomic<std::uint64_t> discarded_{0};  // blocks that were recorded but not written
  std::atomic<bool> stopping_{false}, failed_{false};
  std::string failure_;  // set before failed_
  std::thread writer_;
};

}  // namespace gloo_bypass::capture
