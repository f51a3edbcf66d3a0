package proxy

import (
	"math"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// post is a trigger that is under way on a lane: which, and how many operations of the lane have ended when it has.
type post struct{ pos, ends uint64 }

// taken records that the copier begins to perform a trigger.
func (c *Copier) taken(pos, bytes uint64, l *Lane) {
	c.records.Write(observe.Trigger|observe.Begin, pos, bytes, uint16(min(c.ring.Depth(), math.MaxUint16)), l.peer)
}

// submitted records that the engine has it, or that the host has done it.
func (c *Copier) submitted(pos, bytes uint64, l *Lane, did submitted) {
	c.records.Write(observe.Posted|observe.Instant, pos, bytes, 0, l.peer)
	switch {
	case did == complete && len(c.under[l]) == 0:
		c.records.Write(observe.Completed|observe.Instant, pos, 0, 0, l.peer)
	default:
		if c.under == nil {
			c.under = map[*Lane][]post{}
		}
		given, _ := l.counts()
		c.under[l] = append(c.under[l], post{pos, given})
	}
	c.records.Write(observe.Trigger|observe.End, pos, bytes, 0, l.peer)
}

// completed records how far a lane has come.
func (c *Copier) completed(l *Lane) {
	_, ended := l.counts()
	list, done := c.under[l], 0
	for done < len(list) && list[done].ends <= ended {
		done++
	}
	switch {
	case done == 0:
		return
	case c.records.Wanted():
		c.records.Write(observe.Completed|observe.Instant, list[done-1].pos, 0, 0, l.peer)
	}
	if c.under[l] = list[done:]; done == len(list) {
		delete(c.under, l)
	}
}

// counts are of operations: those that the lane was given so far, and those of them that are known to have ended.
func (l *Lane) counts() (given, ended uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.issued + uint64(l.count), l.progress()
}
