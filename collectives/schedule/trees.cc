#include <algorithm>
#include <bit>
#include <optional>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {
namespace {

// A node's neighbours in a binary tree; -1: none. Children on both sides, so that sums are in the order of the nodes.
struct Node {
  int parent = -1, lower = -1, upper = -1;
};

// Node 0 is the root, with one child. Below it node i hangs by its lowest set bit b, between i - b/2 and i + b/2: odd
// nodes are leaves. Where i + b/2 does not exist, the next smaller subtree takes its place.
Node nodeOf(int node, int size) {
  if (node == 0) {
    const int top = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size)) / 2);
    return {-1, -1, size > 1 ? top : -1};
  }
  const int bit = node & -node;
  Node n;
  n.parent = (node ^ bit) | (bit << 1);
  if (n.parent >= size) n.parent = node ^ bit;
  int half = bit / 2;
  if (half > 0) n.lower = node - half;
  while (half > 0 && node + half >= size) half /= 2;
  if (half > 0) n.upper = node + half;
  return n;
}

// The rounds that a subtree needs to sum up.
int height(int node, int size) {
  const Node n = nodeOf(node, size);
  int deepest = -1;
  for (const int child : {n.lower, n.upper}) {
    if (child >= 0) deepest = std::max(deepest, height(child, size));
  }
  return deepest + 1;
}

int depth(int node, int size) {
  int levels = 0;
  for (node = nodeOf(node, size).parent; node >= 0; node = nodeOf(node, size).parent) ++levels;
  return levels;
}

// Sums one part up the tree and spreads it down again. `node` is this rank's; rankOf gives a node's rank.
template <typename RankOf>
void upAndDown(int node, int size, int part, RankOf&& rankOf, ScheduleBuilder& builder) {
  const Node n = nodeOf(node, size);
  const Parts parts{part, part + 1};
  std::vector<int> sources;
  for (const int source : {n.lower, node, n.upper}) {
    if (source >= 0) sources.push_back(rankOf(source));
  }
  const int top = height(0, size);
  if (sources.size() > 1) builder.reduce(height(node, size) - 1, parts, sources);
  if (n.parent >= 0) {
    builder.send(height(n.parent, size) - 1, parts, rankOf(n.parent));
    builder.receive(top + depth(n.parent, size), parts, rankOf(n.parent));
  }
  for (const int child : {n.lower, n.upper}) {
    if (child >= 0) builder.send(top + depth(node, size), parts, rankOf(child));
  }
}

// Ranks counted from the root on.
struct FromRoot {
  const Place& place;
  int self() const { return (place.rank - place.root + place.size) % place.size; }
  int rank(int number) const { return (number + place.root) % place.size; }
};

// The round in which a rank other than the root joins a binomial tree: that of its highest bit.
int joins(int number) { return std::bit_width(static_cast<unsigned>(number)) - 1; }

}  // namespace

// The second tree is the first one mirrored, or shifted if the number of ranks is odd: leaves of one are inner nodes of
// the other.
Schedule doubleTreeAllReduce(const Place& place) {
  const int size = place.size;
  ScheduleBuilder builder(place.rank, 2);
  upAndDown(place.rank, size, 0, [](int node) { return node; }, builder);
  if (size % 2 == 0) {
    upAndDown(size - 1 - place.rank, size, 1, [size](int node) { return size - 1 - node; }, builder);
  } else {
    upAndDown((place.rank + size - 1) % size, size, 1, [size](int node) { return (node + 1) % size; }, builder);
  }
  return std::move(builder).finish();
}

Schedule binomialBroadcast(const Place& place) {
  const FromRoot order{place};
  const int self = order.self();
  ScheduleBuilder builder(place.rank, 1);
  if (self > 0) builder.receive(joins(self), {0, 1}, order.rank(self ^ (1 << joins(self))));
  for (int k = self == 0 ? 0 : joins(self) + 1; self + (1 << k) < place.size; ++k) {
    builder.send(k, {0, 1}, order.rank(self + (1 << k)));
  }
  return std::move(builder).finish();
}

Schedule binomialReduce(const Place& place) {
  const FromRoot order{place};
  const int self = order.self();
  const int rounds = std::bit_width(static_cast<unsigned>(place.size - 1));
  ScheduleBuilder builder(place.rank, 1);
  for (int k = self == 0 ? 0 : joins(self) + 1; self + (1 << k) < place.size; ++k) {
    builder.reduce(rounds - 1 - k, {0, 1}, {place.rank, order.rank(self + (1 << k))});
  }
  if (self > 0) builder.send(rounds - 1 - joins(self), {0, 1}, order.rank(self ^ (1 << joins(self))));
  return std::move(builder).finish();
}

// Part p belongs to the rank p places after the root. Scatter: whoever has a range gives its upper part away. Then a
// ring, without the parts that its next rank has already.
Schedule scatterAllGatherBroadcast(const Place& place) {
  const FromRoot order{place};
  const int self = order.self(), size = place.size;
  ScheduleBuilder builder(place.rank, size);
  const auto endOf = [size](int number) {  // of the range that a rank has after the scatter
    return number == 0 ? size : std::min(size, number + (number & -number));
  };
  int round = 0;
  for (int half = static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) / 2; half > 0; half /= 2, ++round) {
    if (self % (2 * half) == 0 && self + half < size) {
      builder.send(round, {self + half, std::min(size, self + 2 * half)}, order.rank(self + half));
    }
    if (self % (2 * half) == half) builder.receive(round, {self, endOf(self)}, order.rank(self - half));
  }
  const auto has = [&](int number, int part) { return part >= number && part < endOf(number); };
  const int next = (self + 1) % size, previous = (self + size - 1) % size;
  for (int k = 0; k + 1 < size; ++k) {
    const int given = (self + size - k) % size, got = (previous + size - k) % size;
    if (!has(next, given)) builder.send(round + k, {given, given + 1}, order.rank(next));
    if (!has(self, got)) builder.receive(round + k, {got, got + 1}, order.rank(previous));
  }
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
