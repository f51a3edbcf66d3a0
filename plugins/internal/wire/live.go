package wire

import (
	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func liveOut(l framework.Live) *pb.ProbeResponse {
	out := &pb.ProbeResponse{
		Available: l.Available, Reason: l.Reason, Facts: l.Facts, WholeLines: l.WholeLines, LinksKnown: l.LinksKnown,
	}
	for _, x := range l.Links {
		out.Links = append(out.Links, &pb.DeviceLink{Peer: x.Peer, Count: uint32(max(0, x.Count)), Version: uint32(max(0, x.Version)), ThroughSwitch: x.Switch})
	}
	return out
}

func liveIn(resp *pb.ProbeResponse) framework.Live {
	l := framework.Live{
		Available: resp.GetAvailable(), Reason: resp.GetReason(), Facts: resp.GetFacts(), WholeLines: resp.GetWholeLines(), LinksKnown: resp.GetLinksKnown(),
	}
	for _, x := range resp.GetLinks() {
		l.Links = append(l.Links, framework.DeviceLink{Peer: x.GetPeer(), Count: int(x.GetCount()), Version: int(x.GetVersion()), Switch: x.GetThroughSwitch()})
	}
	return l
}
