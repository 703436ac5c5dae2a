// Command renders loads a chart once, renders it many times with Helm's engine, and prints how long that took.
//
// Here: values, templates and the order of manifests, which is what an operator does that keeps charts loaded.
// Elsewhere: the whole of `helm template`, which is built from the same module.
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: renders CHART TIMES")
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	times, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = measure(os.Args[1], times)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measure prints a JSON list of seconds, one a render.
func measure(path string, times int) error {
	seconds := make([]float64, 0, times)
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	// Dependencies are settled once: that changes the chart.
	if err := chartutil.ProcessDependencies(chart, map[string]any{}); err != nil {
		return err
	}
	release := common.ReleaseOptions{Name: "rel", Namespace: "default", Revision: 1, IsInstall: true}
	for range times {
		begun := time.Now()
		values, err := util.ToRenderValues(chart, map[string]any{}, release, common.DefaultCapabilities.Copy())
		if err != nil {
			return err
		}
		files, err := engine.Engine{}.Render(chart, values)
		if err != nil {
			return err
		}
		for name := range files {
			if strings.HasSuffix(name, "NOTES.txt") {
				delete(files, name)
			}
		}
		if _, _, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder); err != nil {
			return err
		}
		seconds = append(seconds, time.Since(begun).Seconds())
	}
	return json.NewEncoder(os.Stdout).Encode(seconds)
}
