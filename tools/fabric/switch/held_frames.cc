#include "tools/fabric/switch/held_frames.h"

#include <algorithm>

#include "transport/base/check.h"

namespace gloo_bypass::fabric {

void HeldFrames::push(std::size_t lane, TimePoint due, Frame* frame) {
  GLOO_BYPASS_CHECK(lane < queues_.size());
  const Entry entry{due, order_++, lane, frame};
  ++size_;
  std::deque<Entry>& queue = queues_[lane];
  if (!queue.empty() && due < queue.back().due) {
    overtakers_.push(entry);
    return;
  }
  if (queue.empty()) fronts_.push(entry);
  queue.push_back(entry);
}

TimePoint HeldFrames::nextDue() const {
  const TimePoint inOrder = fronts_.empty() ? kNever : fronts_.top().due;
  return overtakers_.empty() ? inOrder : std::min(inOrder, overtakers_.top().due);
}

std::optional<HeldFrames::Due> HeldFrames::pop(TimePoint now) {
  if (nextDue() > now || size_ == 0) return std::nullopt;
  --size_;
  const bool overtaker = fronts_.empty() || (!overtakers_.empty() && fronts_.top() > overtakers_.top());
  if (overtaker) {
    const Entry entry = overtakers_.top();
    overtakers_.pop();
    return Due{entry.lane, entry.due, entry.frame};
  }
  const Entry entry = fronts_.top();
  fronts_.pop();
  std::deque<Entry>& queue = queues_[entry.lane];
  queue.pop_front();
  if (!queue.empty()) fronts_.push(queue.front());
  return Due{entry.lane, entry.due, entry.frame};
}

}  // namespace gloo_bypass::fabric
