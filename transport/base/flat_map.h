// A hash map with open addressing and backward-shift deletion. It allocates nothing per element and shrinks as well as
// grows. For small trivially copyable keys and values. Any insert or erase invalidates pointers to values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gloo_bypass {

// Finaliser of SplitMix64: every input bit changes every output bit, so tags that differ in high bits only spread too.
constexpr std::uint64_t mixBits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// `seed`: random if a peer chooses the keys. Without one the peer could choose keys that collide.
struct MixHash {
  std::uint64_t seed = 0;
  std::uint64_t operator()(std::uint64_t key) const { return mixBits(key ^ seed); }
};

template <typename Key, typename Value, typename Hash = MixHash>
class FlatMap {
 public:
  explicit FlatMap(Hash hash = {}) : hash_(hash) {}
  const Hash& hash() const { return hash_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::size_t memoryBytes() const { return cells_.capacity() * sizeof(Cell); }

  Value* find(const Key& key) {
    if (size_ == 0) return nullptr;
    for (std::size_t i = home(key);; i = next(i)) {
      if (!cells_[i].used) return nullptr;
      if (cells_[i].key == key) return &cells_[i].value;
    }
  }
  const Value* find(const Key& key) const { return const_cast<FlatMap*>(this)->find(key); }
  // The value of `key`; inserts `Value{}` if the key is missing.
  Value& at(const Key& key) {
    if (Value* found = find(key)) return *found;
    if ((size_ + 1) * 4 > cells_.size() * 3) rehash(cells_.empty() ? kMinimumCells : cells_.size() * 2);
    ++size_;
    return place(key, Value{});
  }
  bool erase(const Key& key) {
    Value* found = find(key);
    if (found == nullptr) return false;
    eraseFound(found);
    return true;
  }
  // `value`: from find() or at(), with no change of the map since.
  void eraseFound(const Value* value) {
    std::size_t hole = static_cast<std::size_t>(reinterpret_cast<const char*>(value) -
                                                reinterpret_cast<const char*>(&cells_[0].value)) /
                       sizeof(Cell);
    for (std::size_t i = next(hole); cells_[i].used; i = next(i)) {
      const std::size_t distance = (i - home(cells_[i].key)) & mask_;
      if (distance < ((i - hole) & mask_)) continue;  // would move before its home
      cells_[hole] = cells_[i];
      hole = i;
    }
    cells_[hole].used = false;
    --size_;
    if (cells_.size() > kMinimumCells * 4 && size_ * 8 < cells_.size()) rehash(cells_.size() / 2);
  }
  template <typename F>
  void forEach(F&& f) {
    for (Cell& cell : cells_) {
      if (cell.used) f(cell.key, cell.value);
    }
  }
  void clear() {
    std::vector<Cell>().swap(cells_);  // frees the memory, which assigning {} does not
    size_ = mask_ = 0;
  }

 private:
  struct Cell {
    Key key{};
    Value value{};
    bool used = false;
  };
  static constexpr std::size_t kMinimumCells = 64;

  std::size_t home(const Key& key) const { return hash_(key) & mask_; }
  std::size_t next(std::size_t i) const { return (i + 1) & mask_; }
  Value& place(const Key& key, const Value& value) {
    std::size_t i = home(key);
    while (cells_[i].used) i = next(i);
    cells_[i] = Cell{key, value, true};
    return cells_[i].value;
  }
  void rehash(std::size_t wanted) {
    std::vector<Cell> old(wanted);
    old.swap(cells_);
    mask_ = wanted - 1;
    for (const Cell& cell : old) {
      if (cell.used) place(cell.key, cell.value);
    }
  }

  Hash hash_;
  std::size_t mask_ = 0;     // number of cells - 1; 0: none yet
  std::vector<Cell> cells_;  // a power of two of them
  std::size_t size_ = 0;
};

}  // namespace gloo_bypass
