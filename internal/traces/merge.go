package traces

import "slices"

// merge adds the numbers of a later part of the same job. Calls that have not ended, and failures, are those of the later part.
func (s *Story) merge(o *Story) {
	s.Calls += o.Calls
	s.Lost += o.Lost
	s.Dropped += o.Dropped
	s.Error = max(s.Error, o.Error)
	s.Ranks = max(s.Ranks, o.Ranks)
	s.Open, s.Failed = o.Open, o.Failed
	if o.Slowest != nil && (s.Slowest == nil || o.Slowest.Took > s.Slowest.Took) {
		s.Slowest = o.Slowest
	}
	s.Late = merged(s.Late, o.Late, func(a, b *LateRank) bool { return a.Rank == b.Rank }, func(a, b *LateRank) {
		a.Times += b.Times
		a.Cost += b.Cost
		a.lates = append(a.lates, b.lates...)
		if n := len(a.lates); n > mostTimes {
			a.lates = thinned(a.lates)
		}
	})
	s.Split = merged(s.Split, o.Split, func(a, b *TimeSplit) bool { return a.Rank == b.Rank }, func(a, b *TimeSplit) {
		a.Choose, a.Wait, a.Work, a.Beside = a.Choose+b.Choose, a.Wait+b.Wait, a.Work+b.Work, a.Beside+b.Beside
	})
	s.Proxies = merged(s.Proxies, o.Proxies, func(a, b *ProxyTime) bool { return a.Rank == b.Rank && a.Proxy == b.Proxy }, func(a, b *ProxyTime) {
		a.Triggers, a.Bytes, a.Took = a.Triggers+b.Triggers, a.Bytes+b.Bytes, a.Took+b.Took
	})
	s.Kernels = merged(s.Kernels, o.Kernels, func(a, b *KernelTime) bool { return a.Rank == b.Rank }, func(a, b *KernelTime) {
		a.Launches, a.Took, a.Wait = a.Launches+b.Launches, a.Took+b.Took, a.Wait+b.Wait
		a.Copy, a.Reduce, a.Packets = a.Copy+b.Copy, a.Reduce+b.Reduce, a.Packets+b.Packets
		a.For, a.ForTook = longer(a.For, a.ForTook, b.For, b.ForTook)
	})
	s.Devices = merged(s.Devices, o.Devices, func(a, b *DeviceTime) bool { return a.Rank == b.Rank }, func(a, b *DeviceTime) {
		a.Spans, a.Launch, a.Queued = a.Spans+b.Spans, a.Launch+b.Launch, a.Queued+b.Queued
		a.Took, a.Wait, a.Off = a.Took+b.Took, a.Wait+b.Wait, max(a.Off, b.Off)
		a.For, a.ForTook = longer(a.For, a.ForTook, b.For, b.ForTook)
	})
	s.Links = merged(s.Links, o.Links, func(a, b *LinkTime) bool { return a.From == b.From && a.To == b.To && a.Transport == b.Transport }, func(a, b *LinkTime) {
		a.Puts, a.Bytes, a.Waited = a.Puts+b.Puts, a.Bytes+b.Bytes, a.Waited+b.Waited
		for c, times := range b.times {
			if a.times[c] = append(a.times[c], times...); len(a.times[c]) > mostTimes {
				a.times[c] = thinned(a.times[c])
			}
		}
	})
	s.rank()
}

// longer is the rank of two that was waited for longer, and how long.
func longer(a int, took int64, b int, other int64) (rank int, all int64) {
	switch {
	case a == b:
		return a, took + other
	case other > took:
		return b, other
	}
	return a, took
}

func merged[T any](to, from []T, same func(a, b *T) bool, add func(a, b *T)) []T {
	for i := range from {
		n := slices.IndexFunc(to, func(x T) bool { return same(&x, &from[i]) })
		if n < 0 {
			to = append(to, from[i])
		} else {
			add(&to[n], &from[i])
		}
	}
	return to
}

// thinned keeps every second number.
func thinned(list []int64) []int64 {
	kept := list[:0]
	for i := 0; i < len(list); i += 2 {
		kept = append(kept, list[i])
	}
	return kept
}
