// Package bootstrap connects the ranks of a job before any transport works: it
// finds them, carries parcels between them, and tells every rank when one of them
// dies.
//
// # Ways to connect
//
// [Join] connects processes over TCP. Rank 0 listens at an address that all ranks know, the others
// check in there, and then each rank is linked to the ranks at distance 1, 3, 9, 27, … on both
// sides of it. [InProcess] connects ranks of one process without sockets. Both behave alike, and
// both are a [framework.Bootstrap] and a [Watcher].
//
// # Collectives
//
// [AllGather], [AllGatherBytes] and [Barrier] work over any framework.Bootstrap.
// In each round a rank sends to both sides at once, so what it knows triples:
// 1,024 ranks need seven rounds. They use exactly the links that Join makes, which
// keeps the number of sockets of a rank at 2·log3(N).
//
// # Death
//
// A rank that ends without a goodbye is dead: its links break, and a rank that
// sees this waits a moment for an announcement that explains it, then tells all others
// over the same links. Every pending and every later call then ends with a
// [framework.Error] that names the culprit and wraps framework.ErrPeer. A process
// that is merely stopped keeps its sockets and is not dead.
//
// # The secret
//
// Each connection proves in both directions that its ends know the job's secret, so nobody else can
// join a job, pose as a rank or end it by an announcement. Ranks of one host that are given no
// secret share one of their user, which the first of them makes: in /run/user/UID or
// /tmp/mscclpp-UID, where others have no access. Ranks of several hosts need a common one.
// Config.Insecure goes without: any process that reaches rank 0 while ranks check in can then be
// one of them, and rank 0 warns of it.
//
// Data after that proof is neither encrypted nor signed: an attacker that can rewrite packets on
// the network can read and change it. The same holds for the data of the transports. Where that is
// a concern, the network has to prevent it.
//
// # Jobs one after another
//
// Ranks may join again, at the same address, as soon as they have left: they wait there
// for the end of the job before, within the time for all ranks to come. A second process
// with the number of a rank that is there is refused.
package bootstrap
