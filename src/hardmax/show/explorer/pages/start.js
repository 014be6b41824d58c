// Opens the page at what its address names, and hands out what tests and the curious may want.

const app = new App();
app.openAddress();

window.hardmaxBench = bench;
// For tests and for the curious: the state, the counts once they are current, and the presets.
window.hardmaxExplorer = {
  get state() { return clone(app.state); },
  get counts() {
    const { network, plane } = app.answers;
    return network?.current && plane?.current
      ? { window: network.answer?.counts ?? null, plane: plane.answer?.counts ?? null } : null;
  },
  get map() { return app.map; },
  shadeOf,
  presets: PAGE.presets.map(({ name, library }) => ({ name, library })),
  open: (name) => { app.show(true); app.open(name); },
  openState: (state) => { app.show(true); app.openState(checkedState(state)); },
  python: () => asPython(app.state),
  address: () => app.address(),
};
