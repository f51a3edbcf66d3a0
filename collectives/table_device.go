package collectives

import "github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"

// deviceTable is for two to four GPUs joined as H200s are, and for one alone. Sizes for two
// and four ranks are those at which one algorithm overtook the next on as many H200s, calls
// of float16 in a graph; three ranks take the rows of four. Other numbers of ranks and other
// links have rows that a model makes: see modeled.
//
// Where copy engines take over, kernels would still be as fast up to twice the size.
// They would take multiprocessors from everybody else, though.
var deviceTable = []Row{
	{Collective: AllReduce, MaxBytes: 32 << 10, MaxRanks: 2, Algorithm: "oneshot_ll8"}, // 64 K: 2.55 µs, oneshot_ll128 2.49
	{Collective: AllReduce, MaxBytes: 16 << 10, MaxRanks: 4, Algorithm: "oneshot_ll8"},
	{Collective: AllReduce, MaxBytes: 768 << 10, MaxRanks: 2, Algorithm: "oneshot_ll128"},              // 1 M: 6.01 µs, twoshot_ll128 5.75
	{Collective: AllReduce, MaxBytes: 384 << 10, MaxRanks: 4, Algorithm: "oneshot_ll128"},              // 256 K on four: 5.26 µs, twoshot_ll128 6.35
	{Collective: AllReduce, MaxBytes: 6 << 20, Algorithm: "twoshot_ll128"},                             // 4 M: 16.7 µs, zerocopy 17.4; on four 24.5, 25.1
	{Collective: AllReduce, MaxBytes: 96 << 20, Registered: &yes, Algorithm: "zerocopy"},               // 64 M: 203 µs, copy 206; 128 M 398, 378
	{Collective: AllReduce, MinRanks: 3, MaxBytes: 192 << 20, Registered: &yes, Algorithm: "zerocopy"}, // on four, when kernels stood between copies: 64 M 319 µs, copy 412; 256 M 1264, 1162
	{Collective: AllReduce, Registered: &yes, Algorithm: copyName},
	{Collective: AllReduce, Registered: &yes, Algorithm: "zerocopy"},                     // where there are no copies
	{Collective: AllReduce, MaxBytes: 96 << 20, Algorithm: "stream_ll128"},               // unregistered: 64 M 213 µs, copy_staged 229; 128 M 414, 409
	{Collective: AllReduce, MinRanks: 3, MaxBytes: 192 << 20, Algorithm: "stream_ll128"}, // copy_staged was not measured on four
	{Collective: AllReduce, Algorithm: stagedName},                                       // 256 M: 767 µs, stream_ll128 819; 1 G 2836, 3228
	{Collective: AllReduce, Algorithm: "stream_ll128"},
	{Collective: AllReduce, MaxBytes: 512 << 10, MaxRanks: kernelargs.LLRanks, Algorithm: "oneshot_ll8"}, // where a transport has no lines
	{Collective: AllReduce, MaxBytes: 32 << 10, Algorithm: "allpair_ll8"},
	{Collective: AllReduce, MaxBytes: 512 << 10, Algorithm: "twophase_ll8"},
	{Collective: AllReduce, Algorithm: "twophase_chunk"},

	{Collective: AllGather, MaxBytes: 128 << 10, Algorithm: "direct_ll8"}, // 256 K: 2.90 µs, direct_ll128 2.64; on four 4.21, 3.89
	{Collective: AllGather, MaxBytes: 6 << 20, Algorithm: "direct_ll128"}, // 4 M: 9.06 µs, push 10.4; on four 13.6, 15.3
	{Collective: AllGather, MaxBytes: 96 << 20, Algorithm: "push"},        // 64 M: 98.9 µs; on four 149, copy 161
	{Collective: AllGather, Algorithm: copyName},
	{Collective: AllGather, Algorithm: "push"},
	{Collective: AllGather, MaxBytes: 192 << 20, Algorithm: "stream_ll128"}, // unregistered: 64 M 106 µs, copy_staged 123; 128 M 206, 212
	{Collective: AllGather, MinRanks: 3, MaxBytes: 384 << 20, Algorithm: "shares"},
	{Collective: AllGather, Algorithm: stagedName}, // 256 M: 392 µs, shares 393; 1 G 1435, 1503; not measured on four
	{Collective: AllGather, Algorithm: "shares"},
	{Collective: AllGather, Algorithm: "stream_ll128"},
	{Collective: AllGather, MaxBytes: 512 << 10, Algorithm: "ll8"},
	{Collective: AllGather, Algorithm: "chunk"},

	{Collective: ReduceScatter, MaxBytes: 128 << 10, Algorithm: "direct_ll8"},                              // 256 K: as fast as direct_ll128
	{Collective: ReduceScatter, MaxBytes: 6 << 20, Algorithm: "direct_ll128"},                              // 4 M: 10.3 µs, zerocopy 12.1
	{Collective: ReduceScatter, MaxBytes: 192 << 20, Registered: &yes, Algorithm: "zerocopy"},              // on four, before pieces tapered: 256 M 615 µs, copy 631
	{Collective: ReduceScatter, MaxBytes: 384 << 20, MaxRanks: 2, Registered: &yes, Algorithm: "zerocopy"}, // 256 M: 408 µs, copy 413; 512 M 808, 782
	{Collective: ReduceScatter, Registered: &no, MaxBytes: 192 << 20, Algorithm: "stream_ll128"},           // 128 M: 222 µs, copy 226; 256 M 429, 413
	{Collective: ReduceScatter, MaxBytes: 512 << 10, Algorithm: "ll8"},                                     // where a transport has no lines
	{Collective: ReduceScatter, MaxBytes: 16 << 20, Algorithm: "chunk"},                                    // unregistered
	{Collective: ReduceScatter, Algorithm: copyName},                                                       // 1 G: 1486 µs, zerocopy 1604
	{Collective: ReduceScatter, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: ReduceScatter, Algorithm: "chunk"},

	{Collective: AllToAll, MaxBytes: 128 << 10, Algorithm: "direct_ll8"},        // 256 K: 2.82 µs, direct_ll128 2.57
	{Collective: AllToAll, MaxBytes: 6 << 20, Algorithm: "direct_ll128"},        // 4 M: 9.46 µs, push 10.8
	{Collective: AllToAll, MaxBytes: 192 << 20, MaxRanks: 2, Algorithm: "push"}, // 128 M: 193 µs, copy 196; 256 M 378, 367
	{Collective: AllToAll, MaxBytes: 48 << 20, Algorithm: "push"},               // 16 M: 30.4 µs; on four 46.7
	{Collective: AllToAll, Algorithm: copyName},                                 // on four: 64 M 167 µs
	{Collective: AllToAll, Algorithm: "push"},
	{Collective: AllToAll, MaxBytes: 192 << 20, Algorithm: "stream_ll128"}, // unregistered: 64 M 108 µs, copy_staged 123; 128 M 210, 212
	{Collective: AllToAll, MinRanks: 3, MaxBytes: 384 << 20, Algorithm: "shares"},
	{Collective: AllToAll, Algorithm: stagedName}, // 256 M: 394 µs, shares 395; 1 G 1437, 1507; not measured on four
	{Collective: AllToAll, Algorithm: "shares"},   // in place
	{Collective: AllToAll, Algorithm: "stream_ll128"},
	{Collective: AllToAll, MaxBytes: 512 << 10, Algorithm: "ll8"},
	{Collective: AllToAll, Algorithm: "chunk"},

	{Collective: Broadcast, MaxBytes: 64 << 10, Algorithm: "direct_ll8"},                          // 256 K: 2.76 µs, direct_ll128 2.48
	{Collective: Broadcast, MaxBytes: 8 << 20, MaxRanks: 2, Algorithm: "direct_ll128"},            // 1 M: 4.26 µs; 4 M 13.5, push 16.0
	{Collective: Broadcast, MaxBytes: 2 << 20, Algorithm: "direct_ll128"},                         // on four: 1 M 11.1 µs, stream_ll128 17.5; 4 M 39.7, 24.1
	{Collective: Broadcast, MaxBytes: 96 << 20, MaxRanks: 2, Registered: &yes, Algorithm: "push"}, // 16 M: 52.3 µs, stream_ll128 54.8; 64 M 186, copy 191; 128 M 369, 361
	{Collective: Broadcast, MaxBytes: 48 << 20, Algorithm: "stream_ll128"},                        // unregistered: 16 M 54.8 µs, fetch 56.8; on four 81.4
	{Collective: Broadcast, MaxRanks: 2, Registered: &yes, Algorithm: copyName},                   // 1 G: 2727 µs, fetch 2872
	{Collective: Broadcast, MaxBytes: 384 << 20, Algorithm: "fetch"},                              // two: 64 M 191 µs, shares 197; 256 M 730, 747
	{Collective: Broadcast, MaxRanks: 2, Algorithm: stagedName},                                   // 256 M: 747 µs; 512 M 1412, fetch 1445; 1 G 2770, 2874
	{Collective: Broadcast, Algorithm: "fetch"},                                                   // where there are no copies
	{Collective: Broadcast, Algorithm: "push"},                                                    // on four: 64 M 254 µs, stream_ll128 269
	{Collective: Broadcast, Algorithm: "shares"},                                                  // unregistered: 256 M 752 µs, stream_ll128 791; not measured on four
	{Collective: Broadcast, Algorithm: "stream_ll128"},
	{Collective: Broadcast, Algorithm: "chunk"},

	{Collective: Reduce, MaxBytes: 192 << 10, Algorithm: "direct_ll8"},               // two: 128 K 2.32 µs, direct_ll128 2.66; 256 K 2.70, 2.57
	{Collective: Reduce, MaxBytes: 12 << 20, MaxRanks: 2, Algorithm: "direct_ll128"}, // 4 M: 13.6 µs, zerocopy 17.3, fetch 22.2; 8 M 25.7, 28.7, 34.0
	{Collective: Reduce, MaxBytes: 3 << 20, Algorithm: "direct_ll128"},               // on four, when sums divided: 64 K 5.59 µs, direct_ll8 3.90; 256 K 5.43, 5.53
	{Collective: Reduce, MinRanks: 3, MaxBytes: 6 << 20, Algorithm: "twoshot_ll128"},
	{Collective: Reduce, MinRanks: 3, Algorithm: "shares"},
	{Collective: Reduce, MaxBytes: 768 << 20, Registered: &yes, Algorithm: "zerocopy"}, // 16 M: 51.8 µs, fetch 56.3, stream_ll128 61.1; 256 M 733, 745
	{Collective: Reduce, MaxBytes: 512 << 20, Algorithm: "fetch"},                      // unregistered: 16 M 56.3 µs, stream_ll128 61.2; 64 M 197, shares 202; 1 G 2930, 2920
	{Collective: Reduce, Algorithm: copyName},                                          // two: 512 M 1464 µs, zerocopy 1457; 1 G 2822, 2895
	{Collective: Reduce, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: Reduce, Algorithm: "shares"},
	{Collective: Reduce, Algorithm: "stream_ll128"},
	{Collective: Reduce, Algorithm: "chunk"},

	{Collective: Barrier, Algorithm: "signal"},
}
