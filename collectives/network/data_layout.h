// Where the parts of a schedule lie in a call's buffers. Pure.
//
// Data beyond the schedule's parts times a part's bytes is done in slices, each by a run of the schedule of its own:
//   a vector    a slice is a range of it, cut into as many parts as the schedule has
//   blocks      a slice is a range of each block
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/operation.h"
#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

struct Region {
  const std::byte* input = nullptr;  // null: this rank contributes nothing there
  std::byte* output = nullptr;       // null: this rank does not want it
  std::size_t count = 0;             // elements
};

class DataLayout {
 public:
  // `call` is sound; its buffers must outlive the layout.
  DataLayout(const Call& call, int rank, int size, int parts, std::size_t partBytes);

  std::size_t elementBytes() const { return elementBytes_; }
  std::size_t slices() const { return slices_; }  // at least 1
  Region region(std::size_t slice, Parts parts) const;
  // Of the whole part, over all slices, if ranks might have other ideas of its size; else 0.
  std::uint64_t blockBytes(int part) const;

 private:
  void setBlocks(const Call& call, int rank, int size, int parts);
  std::size_t cut(std::size_t sliceCount, int part) const;

  const std::size_t elementBytes_;
  const std::size_t partCount_;  // elements of a part in a whole slice
  const int parts_;
  bool isVector_ = false;
  Region vector_;
  std::vector<Region> blocks_;  // by part
  std::size_t slices_ = 1;
};

}  // namespace gloo_bypass::collectives
