package setup

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/plan/attach"
)

// PlanSources are the sources of configured execution plans.
func PlanSources(list []config.Plan) (sources []attach.Source) {
	for _, p := range list {
		sources = append(sources, attach.Source{Path: p.Path, Unverified: p.Unverified, Packets: p.Packets})
	}
	return sources
}

// readPlans reads the configured execution plans.
func (j *Job) readPlans(cfg *config.Config) (err error) {
	if j.plans, err = attach.Read(PlanSources(cfg.Collectives.Plans)); err != nil {
		return fmt.Errorf("collectives.plans: %w", err)
	}
	return nil
}

// NewCollectives makes the collectives of a communicator of the job, with the plans that are for it. Rows of the table may
// name plans: they count once these are registered. Collective.
func (j *Job) NewCollectives(ctx context.Context, world *comm.Communicator) (*collectives.Comm, error) {
	o := j.Collectives
	if len(j.plans) > 0 {
		o.Table = nil
	}
	c, err := collectives.New(ctx, world, o)
	if err != nil {
		return nil, err
	}
	if err := attach.All(ctx, c, j.plans, j.Collectives.Table, world.Log()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
