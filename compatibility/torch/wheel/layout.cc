// One class derived from each of Gloo's that a wheel's libtorch_cpu exports a vtable of: theirs must be as large as these, or the
// headers are of another revision than the wheel's Gloo. Read by examine.py, which takes the base's name from LayoutOf<...>.
// rendezvous::Store, transport::Context: 8 and 7 entries in 2022, 13 and 8 in 2023, and in 2025 Context has 9.
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

template <typename Base>
struct LayoutOf : Base {
  ~LayoutOf() override;
};
template <typename Base>
LayoutOf<Base>::~LayoutOf() = default;

template struct LayoutOf<::gloo::rendezvous::Store>;
template struct LayoutOf<::gloo::transport::Context>;
template struct LayoutOf<::gloo::transport::tcp::Device>;
