// A chart of a few series over the last minutes. Its colors are those of the style sheet, so it follows the
// theme. The lines are an SVG that is stretched, the texts are HTML. The arrow keys move the readout.
//
// times: microseconds. series: [{name, values}], null where there is none. unit: count, bytes, or seconds.
const UNITS = {
  count: [1000, ["", "k", "M", "G"]],
  bytes: [1000, ["B", "kB", "MB", "GB"]],
};

function shown(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "seconds") {
    if (value >= 1) return `${value.toPrecision(3)} s`;
    return value >= 1e-3 ? `${+(value * 1e3).toPrecision(3)} ms` : `${+(value * 1e6).toPrecision(3)} µs`;
  }
  const [step, names] = UNITS[unit];
  let at = 0;
  while (value >= step && at < names.length - 1) [value, at] = [value / step, at + 1];
  return `${+value.toPrecision(3)} ${names[at]}`.trim();
}

function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((limit) => limit >= value);
}

export default {
  props: { title: String, unit: String, per: String, times: Array, series: Array, span: Number, empty: String },
  data: () => ({ at: null }),
  computed: {
    last() {
      return this.times.length ? this.times[this.times.length - 1] : 0;
    },
    top() {
      return ceiling(Math.max(0, ...this.series.flatMap((one) => one.values)));
    },
    lines() {
      return this.series.map(({ values }) =>
        values.map((value, at) => {
          if (value === null) return "";
          return `${(values[at - 1] ?? null) === null ? "M" : "L"}${this.place(at, value)}`;
        }).join(""),
      );
    },
    dots() {
      return this.series.map(({ values }) =>
        values.map((value, at) => {
          const isAlone = [values[at - 1], values[at + 1]].every((beside) => (beside ?? null) === null);
          return value !== null && isAlone ? `M${this.place(at, value)}h0` : "";
        }).join(""),
      );
    },
    isEmpty() {
      return this.times.length < 2 || this.series.every((one) => one.values.every((value) => value === null));
    },
    ticks() {
      return [1, 0.5, 0].map((share) => ({ y: 100 - 100 * share, text: this.text(share * this.top) }));
    },
    summary() {
      const parts = this.series.map((one) => {
        const known = one.values.filter((value) => value !== null);
        const most = known.length ? Math.max(...known) : null;
        return `${one.name} ${this.text(one.values[one.values.length - 1])}, at most ${this.text(most)}`;
      });
      return `${this.title}: ${parts.join("; ")}`;
    },
    readout() {
      const at = this.at === null ? this.times.length - 1 : this.at;
      return this.series.map((one) => this.text(one.values[at]));
    },
    moment() {
      if (this.at === null || !(this.at in this.times)) return "";
      return new Date(this.times[this.at] / 1e3).toISOString().slice(11, 19) + " UTC";
    },
  },
  methods: {
    x(at) {
      return 100 - (100 * (this.last - this.times[at])) / (this.span * 1e6);
    },
    place(at, value) {
      return `${this.x(at).toFixed(2)} ${(100 - (100 * value) / this.top).toFixed(2)}`;
    },
    back(seconds) {
      return seconds < 60 ? `${seconds} s` : `${seconds / 60} min`;
    },
    text(value) {
      return shown(value, this.unit);
    },
    point(event) {
      const box = this.$refs.area.getBoundingClientRect();
      const wanted = (100 * (event.clientX - box.left)) / box.width;
      let best = null;
      this.times.forEach((_, at) => {
        if (best === null || Math.abs(this.x(at) - wanted) < Math.abs(this.x(best) - wanted)) best = at;
      });
      this.at = best;
    },
    key(event) {
      const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
      if (!(event.key in steps) || !this.times.length) return;
      event.preventDefault();
      const from = this.at === null ? this.times.length - 1 : this.at;
      this.at = Math.max(0, Math.min(this.times.length - 1, from + steps[event.key]));
    },
  },
  template: `
    <figure class="chart">
      <figcaption>
        <span class="title">{{ title }}</span>
        <span v-for="(one, number) in series" :key="one.name" class="legend" :class="'line-' + number">
          {{ one.name }} <b>{{ readout[number] }}{{ per }}</b>
        </span>
        <span class="moment">{{ moment }}</span>
      </figcaption>
      <div class="plot">
        <span v-for="tick in ticks" :key="tick.y" class="tick" :style="{ top: tick.y + '%' }" aria-hidden="true">
          {{ tick.text }}
        </span>
        <div ref="area" class="area" role="img" tabindex="0" :aria-label="summary" @mousemove="point"
            @mouseleave="at = null" @blur="at = null" @keydown="key">
          <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
            <line v-for="tick in ticks" :key="tick.y" class="grid" x1="0" x2="100" :y1="tick.y" :y2="tick.y" />
            <path v-for="(path, number) in lines" :key="number" :d="path" :class="'line-' + number" />
            <path v-for="(path, number) in dots" :key="'dots-' + number" :d="path" :class="'dots line-' + number" />
          </svg>
          <span v-if="at !== null && at in times" class="rule" :style="{ left: x(at) + '%' }"></span>
          <span v-if="isEmpty" class="nothing">{{ empty }}</span>
        </div>
      </div>
      <div class="times" aria-hidden="true">
        <span>−{{ back(span) }}</span><span>−{{ back(span / 2) }}</span><span>now</span>
      </div>
    </figure>`,
};
