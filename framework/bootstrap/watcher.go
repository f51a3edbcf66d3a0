package bootstrap

// Watcher reports the death of ranks, and announces that this rank leaves.
//
// Implemented by TCP, Local and the result of Sub. Called by framework/comm.
type Watcher interface {
	// Failed is closed when the job, or the group, cannot go on.
	Failed() <-chan struct{}

	// Err returns why, or nil. It names the culprit: framework.PeerOf(err).
	Err() error

	// Announce tells the group that this rank leaves because of cause. All ranks of the
	// group fail with an error that blames framework.PeerOf(cause), or this rank if the
	// cause blames nobody. It returns when the announcement is on its way.
	Announce(cause error)

	// Leave is an orderly goodbye: whatever happens to this rank afterwards is not a
	// death.
	Leave()
}

// Leaver is a Watcher of which a rank can leave while the others go on.
//
// Implemented by TCP, Local and the result of Sub. Called by framework/comm.
type Leaver interface {
	Watcher

	// Depart tells the group that this rank leaves it because of cause. Operations of the others that wait for this
	// rank fail with an error that blames it, and nothing else does. It returns when the news is on its way.
	Depart(cause error)

	// Departed returns a rank of the group that has left so, and why; framework.NoPeer if none has.
	Departed() (rank int, why error)
}
