// Scripts as text: one table of fields for each kind of line, for both ways.
#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "collectives/schedule/choices.h"
#include "tools/fabric/core/quantity.h"
#include "tools/simulation/worlds/operation_case.h"
#include "tools/simulation/worlds/script.h"

namespace gloo_bypass::sim {
namespace {

using collectives::ElementType;
using collectives::Kind;
using collectives::Reduction;

Status refuse(std::string message) { return {ErrorScope::kOperation, ErrorCode::kConfiguration, std::move(message)}; }

// ---- Values.

template <typename Enum>
using Names = std::vector<std::pair<Enum, std::string>>;

template <typename Enum>
Names<Enum> countedNames(int count) {
  Names<Enum> names;
  for (int i = 0; i < count; ++i) names.emplace_back(static_cast<Enum>(i), nameOf(static_cast<Enum>(i)));
  return names;
}

template <typename Enum>
const Names<Enum>& namesOf();
template <>
const Names<Plant>& namesOf<Plant>() {
  static const Names<Plant> names{
      {Plant::kNothing, "nothing"}, {Plant::kFlip, "flip"}, {Plant::kSwallow, "swallow"}, {Plant::kHoard, "hoard"}};
  return names;
}
template <>
const Names<CongestionControl>& namesOf<CongestionControl>() {
  static const Names<CongestionControl> names{{CongestionControl::kAuto, "auto"},
                                              {CongestionControl::kFixed, "fixed"},
                                              {CongestionControl::kSwift, "swift"},
                                              {CongestionControl::kBbr, "bbr"}};
  return names;
}
template <>
const Names<Repair::Mode>& namesOf<Repair::Mode>() {
  static const Names<Repair::Mode> names{
      {Repair::Mode::kAuto, "auto"}, {Repair::Mode::kOff, "off"}, {Repair::Mode::kOn, "on"}};
  return names;
}
template <>
const Names<PayloadChecksum>& namesOf<PayloadChecksum>() {
  static const Names<PayloadChecksum> names{
      {PayloadChecksum::kAuto, "auto"}, {PayloadChecksum::kOff, "off"}, {PayloadChecksum::kOn, "on"}};
  return names;
}
template <>
const Names<KeyKind>& namesOf<KeyKind>() {
  static const Names<KeyKind> names{{KeyKind::kOrdinary, "ordinary"},
                                    {KeyKind::kAnnounced, "announced"},
                                    {KeyKind::kPersistent, "persistent"},
                                    {KeyKind::kWithdrawn, "withdrawn"}};
  return names;
}
template <>
const Names<FaultKind>& namesOf<FaultKind>() {
  static const Names<FaultKind> names{{FaultKind::kEdge, "edge"},       {FaultKind::kMtu, "mtu"},
                                      {FaultKind::kPause, "pause"},     {FaultKind::kKill, "kill"},
                                      {FaultKind::kRestart, "restart"}, {FaultKind::kAbort, "abort"},
                                      {FaultKind::kClose, "close"}};
  return names;
}
template <>
const Names<Kind>& namesOf<Kind>() {
  static const Names<Kind> names = countedNames<Kind>(collectives::kKinds);
  return names;
}
template <>
const Names<ElementType>& namesOf<ElementType>() {
  static const Names<ElementType> names = countedNames<ElementType>(collectives::kElementTypes);
  return names;
}
template <>
const Names<Reduction>& namesOf<Reduction>() {
  static const Names<Reduction> names = countedNames<Reduction>(collectives::kReductions);
  return names;
}

// Names with spaces ("bitwise and") and quantities ("5 ms") are one word here.
std::string asWord(std::string text) {
  std::erase(text, ' ');
  return text;
}

template <typename Value>
std::string valueText(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    for (const auto& [one, name] : namesOf<Value>()) {
      if (one == value) return asWord(name);
    }
    return "unknown";
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_same_v<Value, Duration>) {
    return asWord(fabric::durationText(value));
  } else {
    return fmt::format("{}", value);
  }
}

template <typename Value>
Status setValue(Value& value, std::string_view text) {
  if constexpr (std::is_enum_v<Value>) {
    std::string allowed;
    for (const auto& [one, name] : namesOf<Value>()) {
      if (asWord(name) == text) {
        value = one;
        return {};
      }
      allowed += (allowed.empty() ? "" : ", ") + asWord(name);
    }
    return refuse("is one of " + allowed);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (text != "yes" && text != "no") return refuse("is yes or no");
    value = text == "yes";
  } else if constexpr (std::is_same_v<Value, Duration>) {
    const auto parsed = fabric::parseDuration(text, Duration{0}, std::chrono::hours(24));
    if (!parsed) return parsed.error();
    value = parsed.value();
  } else if constexpr (std::is_same_v<Value, std::string>) {
    value = text;
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return refuse("is a whole number");
  }
  return {};
}

// ---- Fields of a line.

template <typename Line>
struct Field {
  std::string name;
  std::function<std::string(const Line&)> text;
  std::function<Status(Line&, std::string_view)> set;
};
template <typename Line>
using Fields = std::vector<Field<Line>>;

template <typename Line, typename Owner, typename Value>
Field<Line> field(const char* name, Value Owner::* member) {
  return {name, [member](const Line& line) { return valueText(line.*member); },
          [member](Line& line, std::string_view text) { return setValue(line.*member, text); }};
}

// What an edge's changes have under their names in descriptions; empty: not set.
std::string edgeText(const fabric::EdgeChange& change, std::string_view name) {
  const auto share = [](const std::optional<double>& value) {
    return value ? asWord(fabric::percentageText(*value)) : "";
  };
  const auto time = [](const std::optional<Duration>& value) { return value ? valueText(*value) : ""; };
  if (name == "delay") return time(change.delay);
  if (name == "jitter") return time(change.jitter);
  if (name == "reorder_delay") return time(change.reorderDelay);
  if (name == "loss") return share(change.loss);
  if (name == "burst_enter") return share(change.burstEnter);
  if (name == "burst_leave") return share(change.burstLeave);
  if (name == "burst_loss") return share(change.burstLoss);
  if (name == "duplication") return share(change.duplication);
  if (name == "reordering") return share(change.reordering);
  if (name == "corruption") return share(change.corruption);
  if (name == "rate" && change.rateBitsPerSecond)
    return *change.rateBitsPerSecond == 0 ? "unlimited" : asWord(fabric::rateText(*change.rateBitsPerSecond));
  if (name == "queue" && change.queueBytes)
    return *change.queueBytes == 0 ? "unlimited" : fmt::format("{}B", *change.queueBytes);
  return "";
}

template <typename Line>
void addEdgeFields(Fields<Line>& fields) {
  for (const std::string& name : fabric::edgeSettingNames()) {
    fields.push_back({name, [name](const Line& line) { return edgeText(line.settings, name); },
                      [name](Line& line, std::string_view text) { return setEdge(line.settings, name, text); }});
  }
}

template <typename Line>
const Fields<Line>& fieldsOf();
template <>
const Fields<Script>& fieldsOf<Script>() {
  using L = Script;
  static const Fields<L> fields{field<L>("seed", &L::seed),
                                field<L>("ranks", &L::ranks),
                                field<L>("plant", &L::plant),
                                field<L>("call-timeout", &L::callTimeout),
                                field<L>("algorithms", &L::algorithms),
                                field<L>("hosts", &L::hosts)};
  return fields;
}
template <>
const Fields<RankScript>& fieldsOf<RankScript>() {
  using L = RankScript;
  static const Fields<L> fields{field<L>("rank", &L::rank),
                                field<L>("start-at", &L::startAt),
                                field<L>("turn", &L::turn),
                                field<L>("congestion", &L::congestion),
                                field<L>("fec", &L::fec),
                                field<L>("fec-percent", &L::fecPercent),
                                field<L>("checksum", &L::checksum),
                                field<L>("eager-bytes", &L::eagerBytes),
                                field<L>("buffer-bytes", &L::bufferBytes),
                                field<L>("rendezvous-bytes", &L::rendezvousBytes),
                                field<L>("peer-timeout", &L::peerTimeout),
                                field<L>("ahead", &L::ahead),
                                field<L>("lacks", &L::lacks)};
  return fields;
}
template <>
const Fields<PairScript>& fieldsOf<PairScript>() {
  using L = PairScript;
  static const Fields<L> fields{field<L>("from", &L::from),         field<L>("to", &L::to),
                                field<L>("rails", &L::rails),       field<L>("datagram-bytes", &L::datagramBytes),
                                field<L>("lossless", &L::lossless), field<L>("key-packets", &L::keyPackets)};
  return fields;
}
template <>
const Fields<EdgeScript>& fieldsOf<EdgeScript>() {
  using L = EdgeScript;
  static const Fields<L> fields = [] {
    Fields<L> all{field<L>("from", &L::from), field<L>("to", &L::to), field<L>("rail", &L::rail)};
    addEdgeFields(all);
    return all;
  }();
  return fields;
}
template <>
const Fields<MessageScript>& fieldsOf<MessageScript>() {
  using L = MessageScript;
  static const Fields<L> fields{field<L>("from", &L::from),         field<L>("to", &L::to),
                                field<L>("kind", &L::kind),         field<L>("key", &L::key),
                                field<L>("length", &L::length),     field<L>("room", &L::room),
                                field<L>("send-at", &L::sendAt),    field<L>("receive-at", &L::receiveAt),
                                field<L>("cancel", &L::cancelSend), field<L>("confirmed", &L::confirmed),
                                field<L>("consumes", &L::consumes)};
  return fields;
}
template <>
const Fields<OperationScript>& fieldsOf<OperationScript>() {
  using L = OperationScript;
  static const Fields<L> fields{
      field<L>("kind", &L::kind),        field<L>("type", &L::type),       field<L>("reduction", &L::reduction),
      field<L>("count", &L::count),      field<L>("root", &L::root),       field<L>("uneven", &L::uneven),
      field<L>("in-place", &L::inPlace), field<L>("differs", &L::differs), field<L>("pause", &L::pause)};
  return fields;
}
template <>
const Fields<FaultScript>& fieldsOf<FaultScript>() {
  using L = FaultScript;
  static const Fields<L> fields = [] {
    Fields<L> all{field<L>("kind", &L::kind), field<L>("at", &L::at),       field<L>("for", &L::length),
                  field<L>("from", &L::from), field<L>("to", &L::to),       field<L>("rail", &L::rail),
                  field<L>("rank", &L::rank), field<L>("bytes", &L::bytes), field<L>("notice", &L::notice)};
    addEdgeFields(all);
    return all;
  }();
  return fields;
}

// ---- Lines.

// Fields that have their default are left out, unless they say which line it is.
template <typename Line>
std::string lineText(const char* noun, const Line& line) {
  static const Line kDefault{};
  std::string text = noun;
  for (const Field<Line>& one : fieldsOf<Line>()) {
    const std::string value = one.text(line);
    if (value != one.text(kDefault)) text += fmt::format(" {}={}", one.name, value);
  }
  return text + "\n";
}

template <typename Line>
Status readLine(std::string_view words, Line& line) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    if (word.empty()) continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals), value = word.substr(std::min(equals + 1, word.size()));
    const auto& fields = fieldsOf<Line>();
    const auto known = std::find_if(fields.begin(), fields.end(), [&](const auto& one) { return one.name == name; });
    if (known == fields.end()) {
      std::string names;
      for (const auto& one : fields) names += " " + one.name;
      return refuse(fmt::format("'{}' is none of{}", name, names));
    }
    if (Status set = known->set(line, value); !set.ok())
      return refuse(fmt::format("{}: '{}': {}", name, value, set.error().message));
  }
  return {};
}

template <typename Line>
Status addLine(std::string_view words, std::vector<Line>& lines) {
  constexpr std::size_t kMostLines = 100'000;
  if (lines.size() == kMostLines) return refuse("there are too many such lines");
  return readLine(words, lines.emplace_back());
}

Status readAnyLine(std::string_view text, Script& script) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view noun = text.substr(0, end), words = text.substr(std::min(end + 1, text.size()));
  if (noun == "world") return readLine(words, script);
  if (noun == "settings") return addLine(words, script.settings);
  if (noun == "pair") return addLine(words, script.pairs);
  if (noun == "edge") return addLine(words, script.edges);
  if (noun == "message") return addLine(words, script.messages);
  if (noun == "operation") return addLine(words, script.operations);
  if (noun == "fault") return addLine(words, script.faults);
  return refuse(fmt::format("'{}' is none of world settings pair edge message operation fault", noun));
}

Status checkOperations(const Script& script) {
  constexpr std::size_t kMostElements = 1'000'000;
  collectives::ChoiceTable choices;
  if (Status preferred = choices.prefer(script.algorithms); !script.algorithms.empty() && !preferred.ok())
    return preferred;
  for (const OperationScript& line : script.operations) {
    if (!collectives::isDefined(line.reduction, line.type)) return refuse("an operation reduces what it cannot");
    if (line.count > kMostElements) return refuse(fmt::format("an operation has at most {} elements", kMostElements));
    if (line.uneven && !collectives::hasBlocks(line.kind)) return refuse("an operation without blocks is uneven");
  }
  if (script.hosts < 1 || script.hosts > script.ranks) return refuse("a group has 1 host to one for each rank");
  return {};
}

Status checkMessages(const Script& script) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  std::set<std::tuple<int, int, std::uint64_t>> withdrawn;
  for (const MessageScript& line : script.messages) {
    if (line.length > kMostBytes || line.room > kMostBytes)
      return refuse(fmt::format("a message's length and room are at most {} bytes", kMostBytes));
    const std::uint64_t keys = line.kind == KeyKind::kWithdrawn ? kWithdrawnKeys : kOrdinaryKeys;
    if (line.key >= keys) return refuse(fmt::format("a message of this kind has a key below {}", keys));
    if (line.kind == KeyKind::kWithdrawn && !withdrawn.emplace(line.from, line.to, line.key).second)
      return refuse("two withdrawn messages from one rank to another have one key");
  }
  return {};
}

}  // namespace

Status checkScript(const Script& script) {
  if (script.ranks < 2 || script.ranks > Script::kMostRanks)
    return refuse(fmt::format("a world has 2 to {} ranks", Script::kMostRanks));
  const auto isRank = [&](int rank) { return rank >= 0 && rank < script.ranks; };
  const auto arePair = [&](const auto& line) { return isRank(line.from) && isRank(line.to) && line.from != line.to; };
  const auto all = [](const auto& lines, const auto& sound) { return std::all_of(lines.begin(), lines.end(), sound); };
  const bool sound = all(script.pairs, arePair) && all(script.edges, arePair) && all(script.messages, arePair) &&
                     all(script.settings, [&](const RankScript& line) { return isRank(line.rank); }) &&
                     all(script.operations, [&](const OperationScript& line) { return isRank(line.root); }) &&
                     all(script.faults, [&](const FaultScript& line) { return isRank(line.rank) && arePair(line); });
  if (!sound) return refuse("a line names a rank that the world does not have, or a rank as its own peer");
  const auto isRail = [](int rail) { return rail >= 0 && rail < Script::kMostRails; };
  if (!all(script.pairs, [&](const PairScript& line) { return line.rails >= 1 && isRail(line.rails - 1); }) ||
      !all(script.edges, [&](const EdgeScript& line) { return isRail(line.rail); }) ||
      !all(script.faults, [&](const FaultScript& line) { return isRail(line.rail); })) {
    return refuse(fmt::format("a pair has 1 to {} rails", Script::kMostRails));
  }
  if (!all(script.pairs, [](const PairScript& line) { return !line.lossless || line.keyPackets == 0; }))
    return refuse("a lossless pair is not sealed");
  if (Status messages = checkMessages(script); !messages.ok()) return messages;
  return checkOperations(script);
}

std::string textOf(const Script& script) {
  std::string text = lineText("world", script);
  for (const auto& line : script.settings) text += lineText("settings", line);
  for (const auto& line : script.pairs) text += lineText("pair", line);
  for (const auto& line : script.edges) text += lineText("edge", line);
  for (const auto& line : script.messages) text += lineText("message", line);
  for (const auto& line : script.operations) text += lineText("operation", line);
  for (const auto& line : script.faults) text += lineText("fault", line);
  return text;
}

Result<Script> parseScript(std::string_view text) {
  Script script;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    if (Status read = readAnyLine(line, script); !read.ok())
      return Error{ErrorScope::kOperation, ErrorCode::kConfiguration,
                   fmt::format("line {}: {}", number, read.error().message)};
  }
  if (Status sound = checkScript(script); !sound.ok()) return sound.error();
  return script;
}

}  // namespace gloo_bypass::sim
