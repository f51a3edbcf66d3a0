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
