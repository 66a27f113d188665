#include "tools/capture/operation_parts.h"

#include <algorithm>

#include "transport/wire/rail_id.h"

namespace gloo_bypass::capture {
namespace {

constexpr std::uint64_t kTagNumbers = 1u << 24;

// The number with these lower bits that is nearest to `near`.
std::uint64_t numberNear(std::uint64_t near, std::uint32_t lowerBits) {
  const std::uint64_t ahead = (lowerBits - near) % kTagNumbers;
  const std::uint64_t behind = kTagNumbers - ahead;
  return ahead < behind || near < behind ? near + ahead : near - behind;
}

}  // namespace

void OperationTotals::operator+=(const OperationTotals& more) {
  frames += more.frames;
  bytes += more.bytes;
  payloadBytes += more.payloadBytes;
  repeatedBytes += more.repeatedBytes;
  first = std::min(first, more.first);
  last = std::max(last, more.last);
}

void OperationParts::onFrame(const DissectedFrame& frame, CaptureTime time, std::uint64_t repeatedBytes) {
  if (!frame.message) return;
  const MessagePart& message = *frame.message;
  const auto tag = message.tag ? collectives::collectiveTag({MessageKind::kUnbound, *message.tag}) : std::nullopt;
  const auto session = sessionOf(frame, tag.has_value());
  if (!session) {
    if (tag) ++counters_.notKept;
    return;
  }
  const OperationTotals one{1, frame.wireBytes, frame.payloadBytes, repeatedBytes, time, time};
  if (!message.tag) return addChunk(recent_[*session], message.id, one);
  const std::uint32_t part = tag ? partOf(*session, *tag, message) : kNone;
  if (!message.isWhole) describe(recent_[*session], message.id, part);
  if (part != kNone) parts_[part].totals += one;
}

void OperationParts::finish() {
  for (Recent& recent : recent_) {
    for (Message& message : recent.messages) forget(message);
    recent = {};
  }
}

std::optional<std::uint32_t> OperationParts::sessionOf(const DissectedFrame& frame, bool create) {
  if (const std::uint32_t* known = sessionById_.find(frame.session)) return *known;
  if (!create || sessions_.size() >= kMaxSessions) return {};
  const auto session = static_cast<std::uint32_t>(sessions_.size());
  sessions_.push_back({{frame.source, frame.sourcePort}, {frame.destination, frame.destinationPort}});
  recent_.emplace_back();
  sessionById_.at(frame.session) = session;
  for (std::size_t rail = 1; rail < wire::kMaxRails; ++rail) {
    sessionById_.at(wire::railId(frame.session, rail)) = session;
  }
  return session;
}

// kNone: it is not kept, and was counted.
std::uint32_t OperationParts::partOf(std::uint32_t session, const collectives::CollectiveTag& tag,
                                     const MessagePart& message) {
  Recent& recent = recent_[session];
  const auto header = tag.index == 0 ? collectives::decodeOperationHeader(message.beginning) : std::nullopt;
  const bool sound = header && header->operation % kTagNumbers == tag.operation;
  const std::uint64_t number = sound        ? header->operation
                               : recent.any ? numberNear(recent.newest, tag.operation)
                                            : tag.operation;
  std::uint32_t& part = recent.operations[number % kRememberedOperations];
  if (part == kNone || parts_[part].number != number) {
    if (recent.any && number < recent.newest && recent.newest - number >= kRememberedOperations) {
      ++counters_.unplaced;
      return kNone;
    }
    if (parts_.size() >= kMaxParts) {
      ++counters_.notKept;
      return kNone;
    }
    part = static_cast<std::uint32_t>(parts_.size());
    parts_.push_back({.session = session, .number = number});
    recent.newest = recent.any ? std::max(recent.newest, number) : number;
    recent.any = true;
  }
  if (sound && !parts_[part].description) {
    parts_[part].description = collectives::descriptionOf(header->description);
    parts_[part].algorithm = header->algorithm;
  }
  return part;
}

// The message's place; null: a newer one has it.
OperationParts::Message* OperationParts::messageOf(Recent& recent, std::uint64_t id) {
  if (recent.messages.empty()) recent.messages.resize(kRememberedMessages);
  Message& message = recent.messages[id % kRememberedMessages];
  if (message.used && message.id == id) return &message;
  if (message.used && message.id > id) return nullptr;
  forget(message);
  message.used = true;
  message.id = id;
  return &message;
}

void OperationParts::describe(Recent& recent, std::uint64_t id, std::uint32_t part) {
  Message* const message = messageOf(recent, id);
  if (message == nullptr) return;
  if (message->part == kUnknown && part != kNone && message->early.frames > 0) parts_[part].totals += message->early;
  message->early = {};
  message->part = part;
}

void OperationParts::addChunk(Recent& recent, std::uint64_t id, const OperationTotals& frame) {
  Message* const message = messageOf(recent, id);
  if (message == nullptr) {
    ++counters_.unplaced;
  } else if (message->part == kUnknown) {
    message->early += frame;
  } else if (message->part != kNone) {
    parts_[message->part].totals += frame;
  }
}

void OperationParts::forget(Message& message) {
  if (message.used && message.part == kUnknown) counters_.unplaced += message.early.frames;
  message = {};
}

}  // namespace gloo_bypass::capture
