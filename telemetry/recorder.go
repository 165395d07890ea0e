package telemetry

// Recorder takes the calls that were made. A nil Recorder takes them too.
type Recorder struct {
	Metrics *Metrics
}

// Finish ends a call.
func (r *Recorder) Finish(c *Call) {
	if r == nil {
		return
	}
	c.Took = Now() - c.Start
	r.Metrics.call(c, "")
}
