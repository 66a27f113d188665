// The algorithms: one function makes the schedule of one rank. An algorithm is a file, a declaration here, and a row of
// the catalogue (catalogue.cc). Pure.
//
// Names of parts: schedule.h. Sums: "in rank order" means ((rank 0 + rank 1) + rank 2) ..., with any algorithm that
// says so; the others add in an order of their own, which depends on nothing but the number of ranks.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

// direct.cc: every rank exchanges messages with every other.
Schedule oneShotAllReduce(const Place& place);     // 1 round, all of the vector to all; in rank order
Schedule directAllReduce(const Place& place);      // 2 rounds, rank p sums part p; in rank order
Schedule directReduceScatter(const Place& place);  // 1 round; in rank order
Schedule directAllGather(const Place& place);      // 1 round
Schedule directReduce(const Place& place);         // 2 rounds, rank p sums part p; in rank order
Schedule directGather(const Place& place);
Schedule directScatter(const Place& place);
Schedule pairwiseAllToAll(const Place& place);  // in round k with the ranks k away

// ring.cc. P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
Schedule ringAllReduce(const Place& place);               // 2 (size - 1) rounds
Schedule bidirectionalRingAllReduce(const Place& place);  // the same, half of the vector each way round
Schedule ringReduceScatter(const Place& place);
Schedule ringAllGather(const Place& place);

// halving_doubling.cc. R. Rabenseifner, Optimization of collective reduction operations, 2004. Ranks beyond the largest
// power of two give their vector to a neighbour first, and get the result from it.
Schedule halvingDoublingAllReduce(const Place& place);

// recursive_doubling.cc. R. Thakur, R. Rabenseifner, W. Gropp, 2005 (below). Beyond a power of two as halving-doubling.
Schedule recursiveDoublingAllReduce(const Place& place);

// trees.cc. Double tree: P. Sanders, J. Speck, J. L. Traeff, Two-tree algorithms for full bandwidth broadcast,
// reduction and scan, 2009; shaped as in NCCL.
Schedule doubleTreeAllReduce(const Place& place);
Schedule binomialBroadcast(const Place& place);
Schedule binomialReduce(const Place& place);
// R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005.
Schedule scatterAllGatherBroadcast(const Place& place);

// dissemination.cc. D. Hensgen, R. Finkel, U. Manber, Two algorithms for barrier synchronization, 1988. One empty part.
Schedule disseminationBarrier(const Place& place);

// two_level.cc: within each host to its lowest rank, among these by another algorithm, and back.
using MakeSchedule = Schedule (*)(const Place&);
Schedule twoLevelAllReduce(const Place& place, MakeSchedule betweenHosts);
Schedule twoLevelRing(const Place& place);
Schedule twoLevelOneShot(const Place& place);

// rails.cc: each rank of a host gets a part, exchanges it with one rank of each other host, and shares it with its own.
// Bytes cross between hosts for one trip, or two: sums that are sent back, and data that is sent on among more than 3
// hosts. Rails: as in NCCL. K. Kandalla, H. Subramoni, G. Santhanaraman, M. Koop, D. K. Panda, Designing
// multi-leader-based allgather algorithms for multi-core clusters, 2009.
Schedule railsAllReduce(const Place& place);
Schedule railsReduceScatter(const Place& place);
Schedule railsAllGather(const Place& place);
Schedule railsBroadcast(const Place& place);
Schedule railsReduce(const Place& place);
Schedule railsBarrier(const Place& place);

}  // namespace gloo_bypass::collectives
