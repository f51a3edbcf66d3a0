package traces

import "github.com/mscclpp-go/mscclpp/framework/observe"

// clockOf is how the clock of a rank relates to that of rank 0. The ranks of a host have one clock, which only the first of them compares.
func clockOf(info *observe.Info, all []observe.Info) observe.Clock {
	if info.Clock.Pings > 0 {
		return info.Clock
	}
	for i := range all {
		if all[i].Job == info.Job && all[i].HostID == info.HostID && all[i].Clock.Pings > 0 {
			return all[i].Clock
		}
	}
	return observe.Clock{}
}
